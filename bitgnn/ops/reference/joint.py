"""Reference of sums of packed neighbours plus products of packed rows, compared."""

from torch import Tensor

from bitgnn.ops.reference._sums import check_edges
from bitgnn.ops.reference.bspmm import bspmm_bbf
from bitgnn.ops.reference.fused import bmm_add
from bitgnn.ops.reference.table import CSR, PRODUCT, operator

__all__ = ["bspmm_bmm"]


JOINT = "x:P-1,W(size) w:M,W(size) sum_bias:M x_scale:P-1 w_scale:M neighbours:_,W(M) " + PRODUCT
"""Operands beside a layout's."""


@operator(f"{CSR} {JOINT} -> bits:P-1,M")
def bspmm_bmm(
    neighbours: Tensor,
    rowptr: Tensor,
    indices: Tensor,
    x: Tensor,
    w: Tensor,
    size: int,
    row: Tensor | None = None,
    sum_bias: Tensor | None = None,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    trusted: bool = False,
) -> Tensor:
    """Words of ``(x_scale * w_scale) * dot + bias + (row * sum + sum_bias) >= threshold``.

    ``sum`` is that of the words of ``neighbours`` over the pattern, ``dot`` of x times w; every
    float step is rounded on its own in the order of :func:`bspmm_bbf` and :func:`bmm_add`.
    """
    if not trusted:
        check_edges(rowptr, indices, neighbours.size(0))
    sums = bspmm_bbf(neighbours, w.size(0), rowptr, indices, row, sum_bias, trusted=True)
    return bmm_add(
        x, w, sums, size, x_scale, w_scale, bias, threshold, flip, None, None, False, True
    )
