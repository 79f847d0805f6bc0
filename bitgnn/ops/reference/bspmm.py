"""Reference of the eight binary sparse products BSpMM.xyz.

Letters are activation, adjacency, output. On bits ``s = 2 * count - degree`` is the sum of the
+-1 values of a row's neighbours; an empty row gives 0, hence bit 1.
"""

import torch
from torch import Tensor

from bitgnn.ops.reference._sums import canonical_sums, check_edges, row_sums
from bitgnn.ops.reference.pack import decide, from_words, signs, to_words
from bitgnn.ops.reference.table import CSR, operator
from bitgnn.ops.reference.ternary import ternary_values

BIT_ROWS = "x:N,W(size) bias:size threshold:size"
"""Operands of aggregations of bits, beside a layout's."""
_TERNARY_ROWS = "x:_,2,W(size) bias:size threshold:size"
_FLOAT_ROWS = "x:N,K bias:K threshold:K"


def _sign_sums(x: Tensor, size: int, rowptr: Tensor, indices: Tensor) -> Tensor:
    """Int32 ``[M, size]``: sums of the neighbours' +-1 values."""
    values = from_words(x, size).to(torch.int32) * 2 - 1
    return row_sums(rowptr, size, torch.int32, lambda edges: values[indices[edges].long()])


def _scaled_rows(value: Tensor, row: Tensor | None) -> Tensor:
    value = value.to(torch.float32)
    return value if row is None else row.unsqueeze(1) * value


def _with_bias(value: Tensor, bias: Tensor | None) -> Tensor:
    return value if bias is None else value + bias


def _bits(value: Tensor, threshold: Tensor | None) -> Tensor:
    return to_words(decide(value, threshold))


def _float_or_integer(
    sums: Tensor, row: Tensor | None, bias: Tensor | None, integer: bool
) -> Tensor:
    if not integer:
        return _with_bias(_scaled_rows(sums, row), bias)
    if row is not None or bias is not None:
        raise ValueError("integer=True leaves no room for row factors or a bias")
    return sums


@operator(f"{CSR} {BIT_ROWS} -> bits:P-1,size")
def bspmm_bbb(
    x: Tensor,
    size: int,
    rowptr: Tensor,
    indices: Tensor,
    row: Tensor | None = None,
    threshold: Tensor | None = None,
    trusted: bool = False,
) -> Tensor:
    """Words x ``[N, W]`` aggregated to words ``[M, W]``: bit of ``row * s >= threshold``."""
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    return _bits(_scaled_rows(_sign_sums(x, size, rowptr, indices), row), threshold)


@operator(f"{CSR} {BIT_ROWS} -> value:P-1,size")
def bspmm_bbf(
    x: Tensor,
    size: int,
    rowptr: Tensor,
    indices: Tensor,
    row: Tensor | None = None,
    bias: Tensor | None = None,
    integer: bool = False,
    trusted: bool = False,
) -> Tensor:
    """Words x aggregated to float32 ``row * s + bias``, or to int32 ``s`` with ``integer``."""
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    return _float_or_integer(_sign_sums(x, size, rowptr, indices), row, bias, integer)


def _ternary_sums(x: Tensor, size: int, rowptr: Tensor, indices: Tensor) -> Tensor:
    """Int32 ``[M, size]``: sums of the neighbours' values in {-1, 0, +1}."""
    values = ternary_values(x, size).to(torch.int32)
    return row_sums(rowptr, size, torch.int32, lambda edges: values[indices[edges].long()])


@operator(f"{CSR} {_TERNARY_ROWS} -> bits:P-1,size")
def bspmm_tbb(
    x: Tensor,
    size: int,
    rowptr: Tensor,
    indices: Tensor,
    row: Tensor | None = None,
    threshold: Tensor | None = None,
    trusted: bool = False,
) -> Tensor:
    """Ternary x ``[N, 2, W]`` aggregated to words ``[M, W]``: bit of ``row * s >= threshold``."""
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    return _bits(_scaled_rows(_ternary_sums(x, size, rowptr, indices), row), threshold)


@operator(f"{CSR} {_TERNARY_ROWS} -> value:P-1,size")
def bspmm_tbf(
    x: Tensor,
    size: int,
    rowptr: Tensor,
    indices: Tensor,
    row: Tensor | None = None,
    bias: Tensor | None = None,
    integer: bool = False,
    trusted: bool = False,
) -> Tensor:
    """Ternary x aggregated to float32 ``row * s + bias``, or to int32 ``s`` with ``integer``."""
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    return _float_or_integer(_ternary_sums(x, size, rowptr, indices), row, bias, integer)


def _row_products(
    x: Tensor,
    rowptr: Tensor,
    indices: Tensor,
    col: Tensor | None,
) -> Tensor:
    """Sums of (weighted) rows of x: float32 in edge order, or exact int32 for integer x."""
    if not x.is_floating_point():
        if col is not None:
            raise ValueError("integer x has exact sums and leaves no room for col")
        values = x.to(torch.int32)
    else:
        values = x.to(torch.float32)
        if col is not None:
            values = col.unsqueeze(1) * values
    return row_sums(rowptr, x.size(1), values.dtype, lambda edges: values[indices[edges].long()])


@operator(f"{CSR} {_FLOAT_ROWS} col:N -> value:P-1,K")
def bspmm_fbf(
    x: Tensor,
    rowptr: Tensor,
    indices: Tensor,
    row: Tensor | None = None,
    col: Tensor | None = None,
    bias: Tensor | None = None,
    integer: bool = False,
    trusted: bool = False,
) -> Tensor:
    """Dense x ``[N, K]``: ``row[i] * sum_j(col[j] * x[j]) + bias``, float32 in edge order.

    int8 and int16 x (without ``col``) have exact sums, which ``integer`` returns as int32.
    """
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    if integer and x.is_floating_point():
        raise ValueError(f"integer=True needs x to be int8 or int16, got {x.dtype}")
    return _float_or_integer(_row_products(x, rowptr, indices, col), row, bias, integer)


@operator(f"{CSR} {_FLOAT_ROWS} col:N -> bits:P-1,K")
def bspmm_fbb(
    x: Tensor,
    rowptr: Tensor,
    indices: Tensor,
    row: Tensor | None = None,
    col: Tensor | None = None,
    threshold: Tensor | None = None,
    trusted: bool = False,
) -> Tensor:
    """Words of ``bspmm_fbf(...) >= threshold``, without bias."""
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    return _bits(_scaled_rows(_row_products(x, rowptr, indices, col), row), threshold)


@operator(f"{CSR} values:E {BIT_ROWS} x_scale:N -> floats:P-1,size")
def bspmm_bff(
    x: Tensor,
    size: int,
    rowptr: Tensor,
    indices: Tensor,
    values: Tensor,
    x_scale: Tensor | None = None,
    bias: Tensor | None = None,
    trusted: bool = False,
) -> Tensor:
    """Words x, float adjacency: sum of ``+-(values[e] * x_scale[j])`` plus bias, float32."""
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    sign = signs(x, size)
    weights = values.to(torch.float32)
    if x_scale is not None:
        weights = weights * x_scale[indices.long()]

    def term(edges: Tensor) -> Tensor:
        return weights[edges].unsqueeze(1) * sign[indices[edges].long()]

    return _with_bias(row_sums(rowptr, size, torch.float32, term), bias)


@operator(f"{CSR} values:E {BIT_ROWS} x_scale:N -> bits:P-1,size")
def bspmm_bfb(
    x: Tensor,
    size: int,
    rowptr: Tensor,
    indices: Tensor,
    values: Tensor,
    x_scale: Tensor | None = None,
    threshold: Tensor | None = None,
    trusted: bool = False,
) -> Tensor:
    """Words of ``bspmm_bff(...) >= threshold``."""
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    return _bits(bspmm_bff(x, size, rowptr, indices, values, x_scale, trusted=True), threshold)


@operator(f"{CSR} values:E {_FLOAT_ROWS} -> floats:P-1,K")
def bspmm_fff(
    x: Tensor,
    rowptr: Tensor,
    indices: Tensor,
    values: Tensor,
    bias: Tensor | None = None,
    trusted: bool = False,
) -> Tensor:
    """Float x, float adjacency: sum of ``values[e] * x[j]`` in edge order plus bias, float32."""
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    source, weights = x.to(torch.float32), values.to(torch.float32)

    def term(edges: Tensor) -> Tensor:
        return weights[edges].unsqueeze(1) * source[indices[edges].long()]

    return _with_bias(row_sums(rowptr, x.size(1), torch.float32, term), bias)


@operator(f"{CSR} values:E {_FLOAT_ROWS} -> bits:P-1,K")
def bspmm_ffb(
    x: Tensor,
    rowptr: Tensor,
    indices: Tensor,
    values: Tensor,
    threshold: Tensor | None = None,
    trusted: bool = False,
) -> Tensor:
    """Words of ``bspmm_fff(...) >= threshold``."""
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    return _bits(bspmm_fff(x, rowptr, indices, values, trusted=True), threshold)


@operator(f"{CSR} x:N,K bias:K addend:P-1,K -> floats:P-1,K")
def bspmm_slots(
    x: Tensor,
    rowptr: Tensor,
    indices: Tensor,
    row: Tensor | None = None,
    bias: Tensor | None = None,
    addend: Tensor | None = None,
    trusted: bool = False,
) -> Tensor:
    """Float32 ``[M, C]``: ``row[i] * sum_j x[j] + bias + addend[i]``, summed in slots."""
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    value = canonical_sums(
        rowptr,
        x.size(1),
        lambda edges: torch.ones(len(edges), device=x.device),
        lambda edges: x[indices[edges].long()],
    )
    value = value if row is None else row.unsqueeze(1) * value
    value = value if bias is None else value + bias
    return value if addend is None else value + addend
