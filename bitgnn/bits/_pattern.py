"""Patterns in CSR from edge lists: counting sorts in C++ on the CPU, one sort of keys elsewhere."""

import torch
from torch import Tensor

from bitgnn._library import load_libraries
from bitgnn.bits._sources import Edges
from bitgnn.bits.layouts import INT32_MAX, pointer_dtype


def pattern_of(edges: Edges, self_loops: bool = False) -> tuple[Tensor, Tensor]:
    """Row pointer and columns of a pattern; columns ascend in each row, duplicates stay.

    Args:
        edges: in any order; weights are left out.
        self_loops: one loop a node in place of those that are there; the pattern is square then.

    Returns:
        Row pointer ``[num_rows + 1]``, int32 where it fits, and int32 columns.
    """
    if _is_counted(edges):
        rowptr, indices = torch.ops.bitgnn.csr_from_edges(
            edges.columns, edges.rows, edges.num_rows, edges.num_cols, self_loops
        )
        return rowptr, indices[: int(rowptr[-1])]
    # Rows in order, columns ascending inside a row; equal keys are the same edge.
    rows, columns, _, num_rows, num_cols = edges
    key = rows * num_cols + columns
    if self_loops:
        # Loops that are there go behind the last row: nothing waits for their number.
        key = torch.where(rows == columns, num_rows * num_cols, key)
        nodes = torch.arange(num_rows, device=rows.device)
        key = torch.cat([key, nodes * (num_cols + 1)])
    key = torch.sort(key).values
    starts = torch.arange(num_rows + 1, device=rows.device) * num_cols
    rowptr = torch.searchsorted(key, starts).to(pointer_dtype(len(key)))
    if self_loops:
        key = key[: int(rowptr[-1])]
    return rowptr, (key % max(1, num_cols)).to(torch.int32)


def _is_counted(edges: Edges) -> bool:
    """Whether the compiled operator takes these edges."""
    largest = max(len(edges.rows) + edges.num_rows, edges.num_rows + 1, edges.num_cols + 1)
    return (
        edges.rows.device.type == "cpu"
        and largest <= INT32_MAX
        and load_libraries()[0] is not None
        and hasattr(torch.ops.bitgnn, "csr_from_edges")
    )
