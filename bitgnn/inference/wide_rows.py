"""Which products of integers are summed in the order of wide rows: every way to run one agrees.

Results of kernels for single calls and of the one for whole models are the same bits only if both
draw this line where csrc/pairs/cuda/narrow/route.cu does.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MOST_NARROW_COLUMNS", "is_wide", "read_often"]

MOST_NARROW_COLUMNS = 48
"""Columns up to which rows are narrow whatever reads them."""
MOST_OFTEN_FEATURES = 1023
"""Features of a product up to which rows of more columns are narrow if they are read often."""
OFTEN = 16
"""Edges for each row from which on rows are read often."""


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
