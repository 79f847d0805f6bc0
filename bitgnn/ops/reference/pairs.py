"""Reference of the pairs of operators in one call: BMM + ADD, BMM + BSpMM and BSpMM + BMM.

Where the product between BMM and BSpMM is held as narrow integers, ``dot = 2 * half + (K & 1)``:
the half of a product of K signs has one bit less than the product. Without factors the sums are
exact integers. With them they are float32 sums in the order of :func:`canonical_sums`, which
depends only on a row's degree, so that every backend gives the same bits.
"""

import torch
from torch import Tensor

from bitgnn.ops.reference.bmm import binary, bmm_bbb, bmm_bbf, bmm_fbb, bmm_fbf, dot_of
from bitgnn.ops.reference.bspmm import (
    bspmm_bbb,
    bspmm_bbf,
    bspmm_fbb,
    bspmm_fbf,
    canonical_sums,
    check_edges,
    row_sums,
    slice_edges,
)
from bitgnn.ops.reference.int8 import bmm_add_iib
from bitgnn.ops.reference.pack import decide, row_scale, signs, to_words
from bitgnn.ops.reference.table import (
    COMPARED,
    CSR,
    SCALES,
    SHIFTED,
    SLICES,
    Arguments,
    operator,
)

MAX_NARROW_SIZE = 65535
"""Features up to which the half of a product fits 16 bits; wider ones take float rows."""
HEADS = {"log_softmax": 1, "softmax": 2, "classes": 3}
"""Numbers of the heads in the operators; 0 for none."""

_JOINT = (
    f"x:P-1,W(size) w:M,W(size) size:int row?:P-1 sum_bias?:M x_scale?:P-1 w_scale?:M {COMPARED} "
    "trusted=False -> bits:P-1,M"
)
_AGGREGATED = (
    f"x:N,_@packable_or_words w:M,W(size) size:int {CSR} {SCALES} {SHIFTED} scale=False row?:P-1 "
    "col?:N bias?:M"
)
_ROOT = (
    "root?:R,W(root_size) root_w?:M,W(root_size) root_size=0 root_scale?:R root_w_scale?:M "
    "root_bias?:M"
)


def _float_product(a: Arguments, bias: Tensor | None = None) -> Tensor:
    """The product with float output for x as words (int32) or as values."""
    if a.x.dtype == torch.int32:
        return bmm_bbf(a.x, a.w, a.size, a.x_scale, a.w_scale, bias)
    # The weight's scale counts whether or not the rows of x have one.
    if a.scale or a.w_scale is None:
        return bmm_fbf(a.x, a.w, a.w_scale, bias, a.x_threshold, a.x_gain, a.scale)
    value = a.w_scale * bmm_fbf(a.x, a.w, None, None, a.x_threshold, a.x_gain, False)
    return value if bias is None else value + bias


@operator(
    f"x:N,_@packable_or_words w:M,W(size) addend:N,M size:int {SCALES} {COMPARED} {SHIFTED} "
    "scale=False out_bits=False -> out:N,M"
)
def bmm_add(a: Arguments) -> Tensor:
    """``(x_scale * w_scale) * dot + bias + addend`` ``[N, M]``, or words of its comparison."""
    value = _float_product(a, a.bias) + a.addend
    return to_words(decide(value, a.threshold, a.flip)) if a.out_bits else value


@operator(f"{_AGGREGATED} threshold?:M hidden_bits=True out_bits=False trusted=False -> out:P-1,M")
def bmm_bspmm(a: Arguments) -> Tensor:
    """The product, as bits or floats between, aggregated to floats or words."""
    check_edges(a, a.x.size(0))
    pattern, trusted = (a.rowptr, a.indices, a.row), {"trusted": True}
    if not a.hidden_bits:
        hidden = _float_product(a)
        if a.out_bits:
            return bspmm_fbb(hidden, *pattern, a.col, a.threshold, **trusted)
        return bspmm_fbf(hidden, *pattern, a.col, a.bias, **trusted)
    if a.x.dtype == torch.int32:
        hidden = bmm_bbb(a.x, a.w, a.size)
    else:
        hidden = bmm_fbb(a.x, a.w, x_threshold=a.x_threshold, scale=False)
    if a.out_bits:
        return bspmm_bbb(hidden, a.w.size(0), *pattern, a.threshold, **trusted)
    return bspmm_bbf(hidden, a.w.size(0), *pattern, a.bias, **trusted)


@operator(f"neighbours:_,W(M) {CSR} {_JOINT}")
def bspmm_bmm(a: Arguments) -> Tensor:
    """Words of ``(x_scale * w_scale) * dot + bias + (row * sum + sum_bias) >= threshold``.

    ``sum`` is that of the words of ``neighbours`` over the pattern, ``dot`` of x times w; every
    float step is rounded on its own in the order of ``bspmm_bbf`` and :func:`bmm_add`.
    """
    return _sums_and_product(a)


@operator(
    f"neighbours:_,W(M) {CSR} codes:P-1,C(size) weight:M,C(size) size:int row?:P-1 sum_bias?:M "
    "scale?:M shift?:M threshold?:M trusted=False -> bits:P-1,M"
)
def bspmm_bmm_iib(a: Arguments) -> Tensor:
    """Words of ``scale * dot + shift + (row * sum + sum_bias) >= threshold``; NaN gives 0.

    ``sum`` is that of the words of ``neighbours`` over the pattern, ``dot`` of 8-bit rows; every
    float step is rounded on its own in the order of ``bspmm_bbf`` and ``bmm_add_iib``.
    """
    check_edges(a, a.neighbours.size(0))
    sums = bspmm_bbf(
        a.neighbours, a.weight.size(0), a.rowptr, a.indices, a.row, a.sum_bias, trusted=True
    )
    return bmm_add_iib(a.codes, a.weight, sums, a.size, a.scale, a.shift, a.threshold)


@operator(f"neighbours:_,W(M) {SLICES} {_JOINT}")
def bspmm_bmm_sliced(a: Arguments) -> Tensor:
    """Words of a sum over column slices plus a product, compared."""
    return _sums_and_product(slice_edges(a))


def _sums_and_product(a: Arguments) -> Tensor:
    check_edges(a, a.neighbours.size(0))
    sums = bspmm_bbf(
        a.neighbours, a.w.size(0), a.rowptr, a.indices, a.row, a.sum_bias, trusted=True
    )
    product = bmm_bbf(a.x, a.w, a.size, a.x_scale, a.w_scale, a.bias)
    return to_words(decide(product + sums, a.threshold, a.flip))


def finished(scores: Tensor, head: int) -> Tensor:
    """Scores ``[N, C]`` with a head.

    Args:
        scores: float32 ``[N, C]``.
        head: 0 for the scores, else of :data:`HEADS`: ``log_softmax`` or ``softmax`` over the
            features, or ``classes``, int64 ``[N]``, the index of the largest score, the first of
            equal ones and the first NaN where there is one.
    """
    if head == HEADS["log_softmax"]:
        return scores.log_softmax(-1)
    if head == HEADS["softmax"]:
        return scores.softmax(-1)
    return scores.argmax(-1) if head == HEADS["classes"] else scores


def _scores(a: Arguments) -> Tensor:
    """Empty scores, or empty classes where the head is ``classes``."""
    rows = a.rowptr.size(0) - 1
    if a.head == HEADS["classes"]:
        return a.x.new_empty((rows,), dtype=torch.int64)
    return a.x.new_empty((rows, a.w.size(0)), dtype=torch.float32)


@operator(f"{_AGGREGATED} head=0 {_ROOT} order?:P-1,2@int64 shift?:M trusted=False", _scores)
def bmm_bspmm_narrow(a: Arguments) -> Tensor:
    """``(row[i] * w_scale[o]) * sum_j f[j] * dot[j, o] + bias[o]``, ``f = x_scale * col``.

    A ``shift`` [M] of the product adds ``(row[i] * shift[o]) * sum_j f[j]`` before the bias.

    To that comes ``(root_scale[i] * root_w_scale[o]) * dot(root, root_w)[i, o] + root_bias[o]``
    where these packed rows are given, in the order of :func:`bmm_add`. ``head`` says what becomes
    of the scores: :func:`~bitgnn.ops.reference.pairs.finished`. ``order`` (as
    :meth:`BitAdjacency.row_order` has it; compiled operators check it like the pattern) tells
    kernels which rows to begin with and changes nothing.
    """
    check_edges(a, a.x.size(0))
    if a.shift is not None and a.size > MAX_NARROW_SIZE:
        raise ValueError(
            f"bmm_bspmm_narrow: shift must be left out with more than {MAX_NARROW_SIZE} features, "
            f"got {a.size}"
        )
    if a.size > MAX_NARROW_SIZE:
        hidden, pattern = _float_product(a), (a.rowptr, a.indices, a.row)
        value = bspmm_fbf(hidden, *pattern, a.col, a.bias, trusted=True)
    else:
        value = _narrow_sums(a)
    if a.root is not None and a.root_w is not None:
        scales = a.root_scale, a.root_w_scale, a.root_bias
        value = bmm_add(a.root, a.root_w, value, a.root_size, *scales)
    return finished(value, a.head)


def _narrow_sums(a: Arguments) -> Tensor:
    packed, x_scale = a.x.dtype == torch.int32, a.x_scale
    x = signs(a.x, a.size) if packed else binary(a.x, a.x_threshold)
    dot = dot_of(x, signs(a.w, a.size))
    if not packed and a.scale:
        x_scale = row_scale(a.x, a.x_threshold, a.x_gain)
    factor = a.col if x_scale is None else x_scale if a.col is None else x_scale * a.col
    if factor is None:
        sums = row_sums(a.rowptr, dot.size(1), dot.dtype, lambda e: dot[a.indices[e].long()])
        value = sums.to(torch.float32)
        ones = a.rowptr.diff().to(torch.float32).unsqueeze(1)
    else:
        value, ones = _weighted(a, dot, factor)
    value = _scaled(a.row, a.w_scale, value)
    if a.shift is not None:
        value = value + _scaled(a.row, a.shift, ones)
    return value if a.bias is None else value + a.bias


def _scaled(row: Tensor | None, scale: Tensor | None, value: Tensor) -> Tensor:
    """``(row[i] * scale[o]) * value``, without what is None."""
    if row is None or scale is None:
        factor = scale if row is None else row.unsqueeze(1)
        return value if factor is None else factor * value
    return (row.unsqueeze(1) * scale) * value


def _weighted(a: Arguments, dot: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of ``f * dot`` as ``2 * sum(f * half)``, ``sum(f)`` more where K is odd; and these."""
    halves = (dot >> 1).to(torch.float32)
    halves = torch.cat([halves, torch.ones_like(factor).unsqueeze(1)], dim=1)
    sums = canonical_sums(
        a.rowptr,
        halves.size(1),
        lambda edges: factor[a.indices[edges].long()],
        lambda edges: halves[a.indices[edges].long()],
    )
    value, ones = 2 * sums[:, :-1], sums[:, -1:]
    return value + ones if a.size % 2 else value, ones
