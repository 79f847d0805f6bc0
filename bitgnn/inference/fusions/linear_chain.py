"""One call for linear layers on bits that follow each other, where a GPU does it in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitImages, BitTensor
from bitgnn.inference.step import Apply, Step, Tensors, derives_from
from bitgnn.ops import conv
from bitgnn.ops.linear import FEW_ROWS, LinearChain, make_chain

_bmm_bbb = torch.ops.bitgnn.bmm_bbb.default
_bmm_bbf = torch.ops.bitgnn.bmm_bbf.default
_linear_chain = torch.ops.bitgnn.linear_chain.default

MOST_ROWS = 2048
"""Rows up to which one launch is faster than one of each layer, where many fit."""
MOST_BYTES = 512 << 10
"""Of weights: larger ones come faster through all multiprocessors, layer by layer, than through a
cluster."""
HIDDEN = {"weight", "threshold", "flip"}
LAST = {"weight", "weight_scale", "bias"}


def chained_products(group: Sequence[Step], own: Sequence[Tensors]) -> Apply | None:
    """Hidden layers to bits and a last one to floats, up to some number of rows in one launch.

    Args:
        group: ``bmm_bbb`` steps and a ``bmm_bbf``.
        own: their tensors.

    Returns:
        The call, or None where the device has no such launch for these layers.
    """
    allowed = [*[HIDDEN] * (len(group) - 1), LAST]
    if any(step.attributes["scaled"] for step in group):
        return None
    if not all(tensors.keys() <= names for tensors, names in zip(own, allowed, strict=True)):
        return None
    chain = _chain_of(group, own) if _has_clusters(own[0]["weight"].device) else None
    if chain is None:
        return None
    image, layers = chain.image, list(chain.layers)
    most_rows = MOST_ROWS if chain.fits(MOST_ROWS) else FEW_ROWS
    *hidden, last = [
        (tensors["weight"], step.attributes["size"])
        for step, tensors in zip(group, own, strict=True)
    ]
    compared = [(tensors.get("threshold"), tensors.get("flip")) for tensors in own[:-1]]
    scaled = own[-1].get("weight_scale"), own[-1].get("bias")

    @derives_from([tensor for tensors in own for tensor in tensors.values()])
    def run(words: Tensor) -> Any:
        if words.size(0) <= most_rows:
            return _linear_chain(words, image, layers)
        for weight, comparison in zip(hidden, compared, strict=True):
            words = _bmm_bbb(words, *weight, None, None, None, *comparison)
        return _bmm_bbf(words, *last, None, *scaled)

    return run


def _chain_of(group: Sequence[Step], own: Sequence[Tensors]) -> LinearChain | None:
    """The layers in the form of one launch, or None where they are too wide."""
    weights = [
        BitTensor(tensors["weight"], step.attributes["size"])
        for step, tensors in zip(group, own, strict=True)
    ]
    hidden = [
        (weight, _limits(weight, tensors))
        for weight, tensors in zip(weights[:-1], own[:-1], strict=True)
    ]
    try:
        chain = make_chain(hidden, weights[-1], own[-1].get("weight_scale"), own[-1].get("bias"))
    except ValueError:
        return None
    return chain if chain.image.nbytes <= MOST_BYTES and chain.fits() else None


def _has_clusters(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def _limits(weight: BitTensor, tensors: Tensors) -> Tensor:
    """Limit and turned of each output's comparison of integers."""
    kernels = BitImages(weight.words[:, None, None], weight.size)
    return conv.prepare(kernels, threshold=tensors.get("threshold"), flip=tensors.get("flip"))[
        :, 1:
    ].contiguous()
