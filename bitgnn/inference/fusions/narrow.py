"""One call for a product and its aggregation with narrow integers in between.

Results of kernels for single calls and of the one for whole models are the same bits only if both
tell wide rows from narrow ones where csrc/pairs/cuda/narrow/route.cu does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency
from bitgnn.inference.fusions.products import packing_of
from bitgnn.inference.step import Apply, Step, Tensors
from bitgnn.ops.reference.heads import HEADS
from bitgnn.ops.reference.narrow import MAX_NARROW_SIZE

__all__ = ["MOST_NARROW_COLUMNS", "is_wide", "narrow_sums", "read_often", "row_order_of"]

_bmm_bspmm_narrow = torch.ops.bitgnn.bmm_bspmm_narrow.default
MOST_NARROW_COLUMNS = 48
"""Columns up to which rows are narrow whatever reads them."""
MOST_OFTEN_FEATURES = 1023
"""Features of a product up to which rows of more columns are narrow if they are read often."""
OFTEN = 16
"""Edges for each row from which on rows are read often."""
ORDERED_ROWS, ORDERED_EDGES, ORDERED_DEGREE = 1 << 15, 1 << 23, 4
"""Sums of narrow rows gain from an order from so many rows on, or so many edges. Rows of a smaller
mean degree are left as they lie: they gain little, and batches of sampled neighbours, which are
such rows, are used once and would pay for an order each."""


def is_wide(columns: int, size: int, often: bool) -> bool:
    """Whether rows are summed in the order of wide ones.

    Args:
        columns: of a row.
        size: features of the product.
        often: what :func:`read_often` says of the graph.
    """
    return columns > MOST_NARROW_COLUMNS and (not often or size > MOST_OFTEN_FEATURES)


def read_often(adjacency: Any) -> bool:
    """Whether the rows that a pattern gathers are read often on the average."""
    return bool(adjacency.nnz >= OFTEN * adjacency.num_cols)


def row_order_of(adjacency: BitAdjacency) -> Tensor | None:
    """The order of rows that a sum of narrow rows on a GPU gains from, or None.

    It is found with the first call and then belongs to the adjacency, see
    :meth:`~bitgnn.BitAdjacency.row_order`.
    """
    rows, edges = adjacency.shape[0], adjacency.nnz
    pays = edges >= ORDERED_EDGES or ORDERED_ROWS <= rows <= edges // ORDERED_DEGREE
    return adjacency.row_order() if pays else None


def narrow_sums(group: Sequence[Step], own: Sequence[Tensors]) -> Apply | None:
    """One call for ``bmm_bbf`` and ``bspmm_fbf``, with what stands around them.

    Args:
        group: perhaps a packing step, the two, and perhaps a head or a product of the nodes' own
            bits that is added to the sums.
        own: their tensors.

    Returns:
        The call, or None where rows may be held as floats.
    """
    packing, (step, aggregation, *ends), (tensors, last_tensors, *end_tensors) = packing_of(
        group, own
    )
    weight, size = tensors["weight"], step.attributes["size"]
    w_scale, shift = tensors.get("weight_scale"), tensors.get("bias")
    bias, packed = last_tensors.get("bias"), packing or (None, None, False)
    if shift is not None and size > MAX_NARROW_SIZE:
        return None
    head, is_rooted = 0, bool(ends) and ends[0].kind == "bmm_add"
    if is_rooted:
        # Up to these sizes the product is narrow integers on every device, whatever the graph.
        columns = ends[0].attributes["out"]
        is_narrow = columns <= MOST_NARROW_COLUMNS and size <= MAX_NARROW_SIZE
        if not is_narrow or ends[0].inputs[-1] != aggregation.outputs[0]:
            return None
        root, root_size = end_tensors[0], ends[0].attributes["size"]
        root_weight, root_last = root["weight"], (root.get("weight_scale"), root.get("bias"))
    elif ends:
        head = HEADS[ends[0].kind]
    columns, is_cuda = weight.size(0), weight.is_cuda
    reads_scale = packing is None and step.attributes["scaled"]

    def sums(x: Tensor, *rest: Any) -> Any:
        *values, a = rest
        scale = values.pop(0) if reads_scale else None
        arguments: tuple[Any, ...] = (
            x, weight, size, a.rowptr, a.indices, scale, w_scale, *packed, a.row_scale, a.col_scale,
            bias, head,
        )  # fmt: skip
        if is_rooted:
            root_scale = values[1] if len(values) > 1 else None
            arguments = (*arguments, values[0], root_weight, root_size, root_scale, *root_last)
        # Compiled programs must not depend on the size of the graph that they are made with.
        can_order = is_cuda and not torch.compiler.is_compiling()
        is_ordered = can_order and not is_wide(columns, size, read_often(a))
        order = row_order_of(a) if is_ordered else None
        return _bmm_bspmm_narrow(*arguments, order=order, shift=shift, trusted=True)

    return sums
