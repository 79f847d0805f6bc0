"""Sorts edges into CSR; large graphs part by part, in little more memory than the result has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from bitgnn._library import load_libraries
from bitgnn.bits.edges import Edges
from bitgnn.bits.layouts import INT32_MAX, pointer_dtype

LARGE = 1 << 24
"""Edges from which a graph is sorted in parts."""
PARTS = 20
"""Parts of equal numbers of edges: sorting one takes up to 53 bytes an edge, and one byte of every
edge tells its part, which together stay below three tenths of edges and result."""
PIECES = 16
"""Pieces of the edges that are looked at one after the other."""
_COLUMN_BITS = 32
_NO_PART = 255


def pattern_of(edges: Edges, self_loops: bool = False) -> tuple[Tensor, Tensor]:
    """Row pointer, int32 if it fits, and ascending int32 columns of each row; duplicates stay.

    Weights are left out. ``self_loops`` of a square pattern take the place of those that are
    there, one a node. On the CPU the operator makes it in no other memory, else sorts of keys do.
    """
    if _is_counted(edges):
        rowptr, indices = torch.ops.bitgnn.csr_from_edges(
            edges.columns, edges.rows, edges.num_rows, edges.num_cols, self_loops
        )
        return rowptr, indices[: int(rowptr[-1])]
    if len(edges.rows) >= LARGE:
        return _in_parts(edges, self_loops)
    # Rows in order, columns ascending inside a row; equal keys are the same edge.
    rows, columns, _, num_rows, num_cols = edges
    key = rows.long() * num_cols + columns
    if self_loops:
        # Loops that are there go behind the last row: nothing waits for their number.
        key = torch.where(rows == columns, num_rows * num_cols, key)
        nodes = torch.arange(num_rows, device=rows.device)
        key = torch.cat([key, nodes * (num_cols + 1)])
    key = torch.sort(key).values
    rowptr = _rows_of_keys(key, num_rows, num_cols)
    if self_loops:
        key = key[: int(rowptr[-1])]
    return rowptr, (key % max(1, num_cols)).to(torch.int32)


def ordered_pattern_of(edges: Edges) -> tuple[Tensor, Tensor, Tensor]:
    """Row pointer and columns as of :func:`pattern_of`, and the edge of each entry, int64.

    Duplicates follow one another in the order given.
    """
    rows, columns, _, num_rows, num_cols = edges
    key, order = torch.sort(rows.long() * num_cols + columns, stable=True)
    rowptr = _rows_of_keys(key, num_rows, num_cols)
    return rowptr, (key % max(1, num_cols)).to(torch.int32), order


def _rows_of_keys(key: Tensor, num_rows: int, num_cols: int) -> Tensor:
    """Row pointer of ascending keys ``row * num_cols + column``."""
    starts = torch.arange(num_rows + 1, device=key.device) * num_cols
    return torch.searchsorted(key, starts).to(pointer_dtype(len(key)))


def _is_counted(edges: Edges) -> bool:
    """True if the compiled operator takes these edges."""
    largest = max(len(edges.rows) + edges.num_rows, edges.num_rows + 1, edges.num_cols + 1)
    return (
        edges.rows.device.type == "cpu"
        and largest <= INT32_MAX
        and load_libraries()[0] is not None
        and hasattr(torch.ops.bitgnn, "csr_from_edges")
    )


def _pieces(count: int) -> Iterator[slice]:
    size = -(-count // PIECES)
    for start in range(0, count, max(1, size)):
        yield slice(start, min(start + size, count))


def _in_parts(edges: Edges, self_loops: bool) -> tuple[Tensor, Tensor]:
    """The pattern of many edges: rows are counted, then ranges of rows sorted one by one."""
    rows, columns, _, num_rows, _ = edges
    count, device = len(rows), rows.device
    dtype = pointer_dtype(count + num_rows)
    rowptr = torch.zeros(num_rows + 1, dtype=dtype, device=device)
    for piece in _pieces(count):
        held = rows[piece]
        ones = rowptr.new_ones(1).expand_as(held)
        rowptr[1:].index_add_(0, held, (held != columns[piece]).to(dtype) if self_loops else ones)
    if self_loops:
        rowptr[1:].add_(1)
    torch.cumsum(rowptr, 0, dtype=dtype, out=rowptr)
    total = int(rowptr[-1])
    ends = torch.arange(1, PARTS, device=device) * total // PARTS
    inner = torch.searchsorted(rowptr, ends.to(dtype)).clamp_(max=num_rows)
    bounds = torch.unique(torch.cat([inner.new_tensor([0, num_rows]), inner]))
    part = torch.empty(count, dtype=torch.uint8, device=device)
    for piece in _pieces(count):
        held = rows[piece]
        part[piece] = torch.bucketize(held, bounds[1:-1].to(held.dtype), out_int32=True, right=True)
        if self_loops:
            part[piece].masked_fill_(held == columns[piece], _NO_PART)
    indices = torch.empty(total, dtype=torch.int32, device=device)
    places = rowptr[bounds].tolist()
    for number, (first, last) in enumerate(pairwise(bounds.tolist())):
        begin, end = places[number : number + 2]
        found = _sorted_columns(_edges_of(edges, part, number, (first, last), self_loops))
        indices[begin:end] = found
        del found
    return rowptr.to(pointer_dtype(total)), indices


def _edges_of(
    edges: Edges, part: Tensor, number: int, span: tuple[int, int], self_loops: bool
) -> Edges:
    """The edges of one part, whose rows are those of ``span``."""
    rows, columns = [], []
    for piece in _pieces(len(part)):
        kept = (part[piece] == number).nonzero().squeeze(1)
        rows.append(edges.rows[piece][kept])
        columns.append(edges.columns[piece][kept])
    if self_loops:
        nodes = torch.arange(*span, dtype=edges.rows.dtype, device=part.device)
        rows.append(nodes)
        columns.append(nodes)
    own = torch.cat(rows).sub_(span[0])
    return Edges(own, torch.cat(columns), None, span[1] - span[0], edges.num_cols)


def _sorted_columns(edges: Edges) -> Tensor:
    """Columns by row, ascending in each row."""
    if _is_counted(edges):
        given = edges.columns, edges.rows, edges.num_rows, edges.num_cols
        counted: Tensor = torch.ops.bitgnn.csr_from_edges(*given)[1]
        return counted
    key = edges.rows.long().bitwise_left_shift_(_COLUMN_BITS).bitwise_or_(edges.columns)
    del edges
    return torch.sort(key).values.bitwise_and_((1 << _COLUMN_BITS) - 1)
