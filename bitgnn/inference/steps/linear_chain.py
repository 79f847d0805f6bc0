"""One call for linear layers on bits that follow each other, where a GPU does it in one launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitImages, BitTensor
from bitgnn.inference.program import Runner, Step
from bitgnn.inference.steps.derived_buffers import derives_from
from bitgnn.ops import conv
from bitgnn.ops.linear_chain import FEW_ROWS, MOST_LAYERS, LinearChain, make_chain

__all__ = ["bind_linear_chain", "chain_length", "linear_chain_of"]

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

Own = Sequence[Mapping[str, Tensor]]


def chain_length(steps: Sequence[Step]) -> int:
    """How many of the first steps are hidden layers to bits and a last one to floats; or 0."""
    for place, step in enumerate(steps[:MOST_LAYERS]):
        if step.kind not in ("bmm_bbb", "bmm_bbf") or step.attributes["scaled"]:
            return 0
        allowed = HIDDEN if step.kind == "bmm_bbb" else LAST
        if not step.tensors.keys() <= allowed:
            return 0
        if step.kind == "bmm_bbf":
            return place + 1 if place else 0
    return 0


def linear_chain_of(group: Sequence[Step], own: Own) -> LinearChain | None:
    """The layers in the form of one launch, or None where the device has none for them."""
    if not _has_clusters(own[0]["weight"].device):
        return None
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
    except ValueError:  # too wide
        return None
    return chain if chain.image.nbytes <= MOST_BYTES and chain.fits() else None


def _has_clusters(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def _limits(weight: BitTensor, tensors: Mapping[str, Tensor]) -> Tensor:
    """Limit and turned of each output's comparison of integers."""
    kernels = BitImages(weight.words[:, None, None], weight.size)
    return conv.prepare(kernels, threshold=tensors.get("threshold"), flip=tensors.get("flip"))[
        :, 1:
    ].contiguous()


def bind_linear_chain(group: Sequence[Step], own: Own, chain: LinearChain) -> Runner:
    """The call: one launch up to some number of rows, beyond it layer by layer."""
    (x,), (out,) = group[0].inputs, group[-1].outputs
    image, layers = chain.image, list(chain.layers)
    most_rows = MOST_ROWS if chain.fits(MOST_ROWS) else FEW_ROWS
    *hidden, last = [
        (tensors["weight"], step.attributes["size"])
        for step, tensors in zip(group, own, strict=True)
    ]
    compared = [(tensors.get("threshold"), tensors.get("flip")) for tensors in own[:-1]]
    scaled = own[-1].get("weight_scale"), own[-1].get("bias")

    @derives_from([tensor for tensors in own for tensor in tensors.values()])
    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        words = v[x]
        if words.size(0) <= most_rows:
            v[out] = _linear_chain(words, image, layers)
            return
        for weight, comparison in zip(hidden, compared, strict=True):
            words = _bmm_bbb(words, *weight, None, None, None, *comparison)
        v[out] = _bmm_bbf(words, *last, None, *scaled)

    return run
