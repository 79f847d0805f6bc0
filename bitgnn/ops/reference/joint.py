"""Reference of sums of packed neighbours plus products of packed rows, compared."""

from torch import Tensor

from bitgnn.ops.reference._sums import check_edges
from bitgnn.ops.reference.bspmm import bspmm_bbf, bspmm_bbf_sliced
from bitgnn.ops.reference.fused import bmm_add
from bitgnn.ops.reference.table import CSR, PRODUCT, SLICES, operator

__all__ = ["bspmm_bmm", "bspmm_bmm_sliced"]


_JOINT = "x:P-1,W(size) w:M,W(size) sum_bias:M x_scale:P-1 w_scale:M neighbours:_,W(M) " + PRODUCT


@operator(f"{CSR} {_JOINT} -> bits:P-1,M")
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


@operator(f"{SLICES} {_JOINT} -> bits:P-1,M")
def bspmm_bmm_sliced(
    neighbours: Tensor,
    rowptr: Tensor,
    local_indices: Tensor,
    group_steps: Tensor,
    group_places: Tensor,
    slice_groups: Tensor,
    row_slots: Tensor,
    row_items: Tensor,
    slice_size: int,
    places: int,
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
    """The same over a sliced pattern."""
    sums = bspmm_bbf_sliced(
        neighbours, w.size(0), rowptr, local_indices, group_steps, group_places, slice_groups,
        row_slots, row_items, slice_size, places, row, sum_bias, trusted=trusted,
    )  # fmt: skip
    return bmm_add(
        x, w, sums, size, x_scale, w_scale, bias, threshold, flip, None, None, False, True
    )
