"""Reference of the pairs of operators in one call: BMM + ADD and BMM + BSpMM."""

import torch
from torch import Tensor

from bitgnn.ops.reference._sums import check_edges
from bitgnn.ops.reference.bmm import bmm_bbb, bmm_bbf, bmm_fbb, bmm_fbf
from bitgnn.ops.reference.bspmm import bspmm_bbb, bspmm_bbf, bspmm_fbb, bspmm_fbf
from bitgnn.ops.reference.pack import decide, to_words
from bitgnn.ops.reference.table import CSR, EITHER_X, PACKED_W, PRODUCT, operator


def _float_product(
    x: Tensor,
    w: Tensor,
    size: int,
    x_scale: Tensor | None,
    w_scale: Tensor | None,
    bias: Tensor | None,
    x_threshold: Tensor | None,
    x_gain: Tensor | None,
    scale: bool,
) -> Tensor:
    """The product with float output for x as words (int32) or as values."""
    if x.dtype == torch.int32:
        return bmm_bbf(x, w, size, x_scale, w_scale, bias)
    # The weight's scale counts whether or not the rows of x have one.
    if scale or w_scale is None:
        return bmm_fbf(x, w, w_scale, bias, x_threshold, x_gain, scale)
    value = w_scale * bmm_fbf(x, w, None, None, x_threshold, x_gain, False)
    return value if bias is None else value + bias


@operator(f"{EITHER_X} {PACKED_W} addend:N,M {PRODUCT} -> out:N,M")
def bmm_add(
    x: Tensor,
    w: Tensor,
    addend: Tensor,
    size: int,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    scale: bool = False,
    out_bits: bool = False,
) -> Tensor:
    """``(x_scale * w_scale) * dot + bias + addend`` ``[N, M]``, or words of its comparison."""
    value = _float_product(x, w, size, x_scale, w_scale, bias, x_threshold, x_gain, scale) + addend
    if not out_bits:
        return value
    return to_words(decide(value, threshold, flip))


@operator(f"{EITHER_X} {PACKED_W} {CSR} col:N {PRODUCT} -> out:P-1,M")
def bmm_bspmm(
    x: Tensor,
    w: Tensor,
    size: int,
    rowptr: Tensor,
    indices: Tensor,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    scale: bool = False,
    row: Tensor | None = None,
    col: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    hidden_bits: bool = True,
    out_bits: bool = False,
    trusted: bool = False,
) -> Tensor:
    """The product, as bits or floats between, aggregated to floats or words."""
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    if hidden_bits:
        if x.dtype == torch.int32:
            hidden = bmm_bbb(x, w, size)
        else:
            hidden = bmm_fbb(x, w, x_threshold=x_threshold, scale=False)
        if out_bits:
            return bspmm_bbb(hidden, w.size(0), rowptr, indices, row, threshold, True)
        return bspmm_bbf(hidden, w.size(0), rowptr, indices, row, bias, trusted=True)
    hidden = _float_product(x, w, size, x_scale, w_scale, None, x_threshold, x_gain, scale)
    if out_bits:
        return bspmm_fbb(hidden, rowptr, indices, row, col, threshold, True)
    return bspmm_fbf(hidden, rowptr, indices, row, col, bias, trusted=True)
