"""One call for several products: around an aggregation, in a chain, or pooled convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitImages, BitTensor
from bitgnn.bits.tensor import words_for
from bitgnn.inference.step import Apply, Step, Tensors, derives_from
from bitgnn.ops import conv
from bitgnn.ops.linear import LinearChain, make_chain

_bmm_bbb = torch.ops.bitgnn.bmm_bbb.default
_bmm_bbf = torch.ops.bitgnn.bmm_bbf.default
_bmm_add = torch.ops.bitgnn.bmm_add.default
_bspmm_bmm = torch.ops.bitgnn.bspmm_bmm.default
_bspmm_bmm_sliced = torch.ops.bitgnn.bspmm_bmm_sliced.default
_bits_linear = torch.ops.bitgnn.bits_linear.default
_bspmm_fbf = torch.ops.bitgnn.bspmm_fbf.default
_bspmm_slots = torch.ops.bitgnn.bspmm_slots.default
_conv_bbb = torch.ops.bitgnn.conv_bbb.default
_linear_chain = torch.ops.bitgnn.linear_chain.default
FRAGMENT = 4
"""Columns of one access of a GPU: each map's columns start with a whole one."""
MOST_NEIGHBOURS = 64
"""Mean degree up to which rows are short; beyond, the order of edges costs less than slots do."""
CHAINING = "cuda"
"""Type of devices whose launches cost enough to take several layers at once."""
MOST_ROWS = 2048
"""Rows up to which one launch is faster than one of each layer."""
MOST_BYTES = 512 << 10
"""Of weights: larger ones come faster through all multiprocessors, layer by layer, than through a
cluster."""
_HIDDEN = {"weight", "threshold", "flip"}
_LAST = {"weight", "weight_scale", "bias"}


def joint_product(group: Sequence[Step], own: Sequence[Tensors]) -> Apply | None:
    """The sign of a sum of neighbours' bits and a product of the nodes' own, as one call.

    With a ``bmm_bbb`` in front it makes two calls of operators.
    """
    *products, sums, root = group
    if root.inputs[-1] != sums.outputs[0] or (products and own[0].keys() != {"weight"}):
        return None
    hidden_size, size = sums.attributes["size"], root.attributes["size"]
    sum_bias, tensors, words = own[-2].get("bias"), own[-1], words_for(hidden_size)
    weight = tensors["weight"]
    rest = tuple(tensors.get(name) for name in ("weight_scale", "bias", "threshold", "flip"))
    first_weight, first_size = own[0].get("weight"), group[0].attributes["size"]

    def join(first: Tensor, x: Tensor, *given: Any) -> Any:
        a, scale = given[-1], given[0] if len(given) > 1 else None
        neighbours = _bmm_bbb(first, first_weight, first_size) if products else first
        root_last = (x, weight, size, a.row_scale, sum_bias, scale, *rest)
        if a.reads_slices(words):
            return _bspmm_bmm_sliced(neighbours, *a.sliced().arguments, *root_last, trusted=True)
        return _bspmm_bmm(neighbours, a.rowptr, a.indices, *root_last, trusted=True)

    return join


def linear_pair(group: Sequence[Step], own: Sequence[Tensors]) -> Apply | None:
    """One product for two float maps of the same bits, ``A(x V) + x W``."""
    first, sums, last = group
    *shared, addend = last.inputs
    if tuple(shared) != first.inputs or not last.attributes["adds"] or addend != sums.outputs[0]:
        return None
    size, width = first.attributes["size"], first.attributes["out"]
    root = -(-width // FRAGMENT) * FRAGMENT
    apart = [(t["digits"], t["step"], t.get("bias")) for t in (own[0], own[2])]
    (digits, step, bias), sum_bias = _stacked(apart, root), own[1].get("bias")
    scaled = first.attributes["scaled"]

    @derives_from([*own[0].values(), *own[2].values()])
    def pair(words: Tensor, *rest: Any) -> Any:
        a, scale = rest[-1], rest[0] if scaled else None
        pattern = (a.rowptr, a.indices, a.row_scale)
        if a.col_scale is None and a.nnz <= MOST_NEIGHBOURS * a.shape[0]:
            both = _bits_linear(words, digits, step, size, scale, bias)
            mapped, added = both[:, :width], both[:, root : root + width]
            return _bspmm_slots(mapped, *pattern, sum_bias, added, trusted=True)
        (digits1, step1, bias1), (digits2, step2, bias2) = apart
        mapped = _bits_linear(words, digits1, step1, size, scale, bias1)
        total = _bspmm_fbf(mapped, *pattern, a.col_scale, sum_bias, trusted=True)
        return _bits_linear(words, digits2, step2, size, scale, bias2, total)

    return pair


def _stacked(
    pairs: Sequence[tuple[Tensor, Tensor, Tensor | None]], columns: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Digits, steps and biases of both maps one below the other, ``columns`` outputs each."""
    lacking = columns - pairs[0][1].size(0)
    digits = torch.cat([pad(d, (0, 0, 0, 0, 0, 0, 0, lacking)) for d, _, _ in pairs], dim=1)
    steps = torch.cat([pad(step, (0, lacking)) for _, step, _ in pairs])
    biases = [torch.zeros_like(step) if bias is None else bias for _, step, bias in pairs]
    return digits.contiguous(), steps, torch.cat([pad(bias, (0, lacking)) for bias in biases])


def pooled_convolution(group: Sequence[Step], own: Sequence[Tensors]) -> Apply | None:
    """One call for ``conv_bbb`` and ``pool_bits``, which a GPU does in one launch where it can.

    Windows may not overlap, leave pixels out or be padded.
    """
    convolution, pool = group
    window, a = pool.attributes["kernel"], convolution.attributes
    if pool.attributes["stride"] != window or any(pool.attributes["padding"]):
        return None
    weight = own[0]["weight"]
    numbers = (a["size"], a["stride"], a["padding"], a["dilation"], a["groups"])
    compared = [own[0].get(name) for name in ("threshold", "flip", "prepared")]
    rest = (None, None, *compared, window, own[1].get("flip"))
    return lambda x: _conv_bbb(x, weight, *numbers, *rest)


def chained_products(group: Sequence[Step], own: Sequence[Tensors]) -> Apply | None:
    """Hidden layers to bits and a last one to floats, up to some number of rows in one launch."""
    allowed = [*[_HIDDEN] * (len(group) - 1), _LAST]
    if any(step.attributes["scaled"] for step in group):
        return None
    if not all(tensors.keys() <= names for tensors, names in zip(own, allowed, strict=True)):
        return None
    may_chain = own[0]["weight"].device.type == CHAINING
    chain = _chain_of(group, own) if may_chain else None
    if chain is None:
        return None
    image, layers = chain.image, list(chain.layers)
    *hidden, last = [
        (tensors["weight"], step.attributes["size"])
        for step, tensors in zip(group, own, strict=True)
    ]
    compared = [(tensors.get("threshold"), tensors.get("flip")) for tensors in own[:-1]]
    scaled = own[-1].get("weight_scale"), own[-1].get("bias")

    @derives_from([tensor for tensors in own for tensor in tensors.values()])
    def run(words: Tensor) -> Any:
        if words.size(0) <= MOST_ROWS:
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
    hidden = []
    for weight, tensors in zip(weights[:-1], own[:-1], strict=True):
        kernels = BitImages(weight.words[:, None, None], weight.size)
        threshold, flip = tensors.get("threshold"), tensors.get("flip")
        # Limit and turned of each output's comparison of integers.
        limits = conv.prepare(kernels, threshold=threshold, flip=flip)[:, 1:].contiguous()
        hidden.append((weight, limits))
    try:
        chain = make_chain(hidden, weights[-1], own[-1].get("weight_scale"), own[-1].get("bias"))
    except ValueError:
        return None
    return chain if chain.image.nbytes <= MOST_BYTES and chain.fits() else None
