"""Rows in the order of their degrees, which calls are given where that pays."""

from __future__ import annotations

from torch import Tensor

from bitgnn.bits import BitAdjacency

__all__ = ["row_order_of"]

# Sums of narrow rows gain from so many rows on, or so many edges. Rows of fewer edges than so many
# on the mean are left as they lie: they gain little, and batches of sampled neighbours, which are
# such rows, are used once and would pay for an order each.
ORDERED_ROWS, ORDERED_EDGES, ORDERED_DEGREE = 1 << 15, 1 << 23, 4


def row_order_of(adjacency: BitAdjacency) -> Tensor | None:
    """The order of rows that a sum of narrow rows on a GPU gains from, or None.

    It is found with the first call and then belongs to the adjacency, see
    :meth:`~bitgnn.BitAdjacency.row_order`.

    Args:
        adjacency: of the graph.
    """
    rows, edges = adjacency.shape[0], adjacency.nnz
    pays = edges >= ORDERED_EDGES or ORDERED_ROWS <= rows <= edges // ORDERED_DEGREE
    return adjacency.row_order() if pays else None
