"""Rows in the order of their degrees: what calls are given, and what kernels find themselves."""

from __future__ import annotations

from torch import Tensor

from bitgnn.bits import BitAdjacency

__all__ = ["row_order_bytes", "row_order_of"]

# Sums of narrow rows gain from so many rows on, or so many edges. Rows of fewer edges than so many
# on the mean are left as they lie: they gain little, and batches of sampled neighbours, which are
# such rows, are used once and would pay for an order each.
ORDERED_ROWS, ORDERED_EDGES, ORDERED_DEGREE = 1 << 15, 1 << 23, 4

# As in csrc/bspmm/cuda/row_order.cu.
ORDER_EDGES = 1 << 18
ORDER_BLOCKS, ORDER_THREADS = 128, 1024
DEGREE_CLASS_BYTES = 128 * 4
ROW_SPAN_BYTES = 16


def row_order_of(adjacency: BitAdjacency) -> Tensor | None:
    """The order of rows that a sum of narrow rows on a GPU gains from, or None.

    It is found with the first call and then belongs to the adjacency, see
    :meth:`~bitgnn.BitAdjacency.row_order`.

    Args:
        adjacency: on a CUDA device.
    """
    rows, edges = adjacency.shape[0], adjacency.nnz
    pays = edges >= ORDERED_EDGES or ORDERED_ROWS <= rows <= edges // ORDERED_DEGREE
    return adjacency.row_order() if pays else None


def row_order_bytes(edges: int, nodes: int) -> int:
    """Bytes in which kernels find the order of ``nodes`` rows with ``edges`` edges themselves."""
    if edges < ORDER_EDGES:
        return 0
    blocks = min(-(-nodes // ORDER_THREADS), ORDER_BLOCKS)
    return blocks * DEGREE_CLASS_BYTES + nodes * ROW_SPAN_BYTES
