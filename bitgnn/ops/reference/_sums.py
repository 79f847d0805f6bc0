"""Row sums over compressed sparse rows in edge order, and the layouts turned back into edges."""

from collections.abc import Callable

import torch
from torch import Tensor

SUM_SLOTS = 8
"""Partial sums of a piece: slot ``s`` takes edges ``s, s + 8, s + 16, ...`` in that order."""

SUM_PIECE = 128
"""Edges of a piece; the pieces of a row are added up from the first to the last."""


def check_edges(rowptr: Tensor, indices: Tensor, num_cols: int) -> None:
    """Require a pattern in CSR whose edges stay inside ``num_cols`` columns.

    Raises:
        ValueError: ``rowptr`` does not ascend from 0 to the number of edges, or an index lies
            outside.
    """
    if int(rowptr[0]) != 0 or bool((rowptr.diff() < 0).any()):
        raise ValueError("rowptr must begin with 0 and never descend")
    if int(rowptr[-1]) != len(indices):
        raise ValueError(f"the last entry of rowptr must be {len(indices)}, got {int(rowptr[-1])}")
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= num_cols):
        raise ValueError(f"indices must lie in [0, {num_cols})")


def row_sums(
    rowptr: Tensor, width: int, dtype: torch.dtype, term: Callable[[Tensor], Tensor]
) -> Tensor:
    """Add ``term(edges)`` ``[len(edges), width]`` up for each row, strictly in edge order.

    Step ``p`` adds the p-th edge of every row that has one, so the order is that of a plain loop
    over the row's edges while the work stays vectorised over rows.
    """
    starts, degree = rowptr[:-1].long(), rowptr.diff()
    total = torch.zeros(len(starts), width, dtype=dtype, device=rowptr.device)
    active = torch.arange(len(starts), device=rowptr.device)
    for position in range(int(degree.max()) if len(starts) else 0):
        active = active[degree[active] > position]
        total[active] = total[active] + term(starts[active] + position)
    return total


def canonical_sums(
    rowptr: Tensor, width: int, factor: Callable[[Tensor], Tensor], value: Callable[..., Tensor]
) -> Tensor:
    """Float32 ``[M, width]``: sums of ``factor(edges) * value(edges)`` in the canonical order.

    Edge ``p`` of a piece goes to slot ``p % 8`` by a fused multiply-add; the slots are folded as
    ``s[:4] + s[4:]``, then ``s[:2] + s[2:]``, then ``s[0] + s[1]``; pieces follow one another.
    """
    starts, ends, device = rowptr[:-1].long(), rowptr[1:].long(), rowptr.device
    pieces = -((starts - ends) // SUM_PIECE)
    row_of = torch.arange(len(starts), device=device).repeat_interleave(pieces)
    before = pieces.cumsum(0) - pieces
    begins = starts[row_of] + SUM_PIECE * (
        torch.arange(len(row_of), device=device) - before[row_of]
    )
    ends = ends[row_of]
    slots = torch.zeros(len(row_of), SUM_SLOTS, width, dtype=torch.float32, device=device)
    for position in range(min(SUM_PIECE, int((ends - begins).max()) if len(row_of) else 0)):
        taking = torch.nonzero(begins + position < ends).squeeze(1)
        edges, slot = begins[taking] + position, position % SUM_SLOTS
        # Exact in float64 but for the last rounding: a fused multiply-add.
        product = factor(edges).double().unsqueeze(1) * value(edges).double()
        slots[taking, slot] = (slots[taking, slot].double() + product).float()
    count = SUM_SLOTS
    while count > 1:
        count //= 2
        slots = slots[:, :count] + slots[:, count:]
    total = torch.zeros(len(starts), width, dtype=torch.float32, device=device)
    for piece in range(int(pieces.max()) if len(pieces) else 0):
        active = torch.nonzero(pieces > piece).squeeze(1)
        total[active] = total[active] + slots[before[active] + piece, 0]
    return total


def tile_edges(
    tile_rowptr: Tensor, tile_cols: Tensor, tiles: Tensor, num_rows: int
) -> tuple[Tensor, Tensor]:
    """Row pointer and column indices of FRDC tiles: bit ``4 * r + c`` is (row r, column c)."""
    device = tiles.device
    tile_rows = torch.repeat_interleave(
        torch.arange(len(tile_rowptr) - 1, device=device), tile_rowptr.diff().long()
    )
    positions = torch.arange(16, dtype=torch.int32, device=device)
    held = ((tiles.to(torch.int32).unsqueeze(1) >> positions) & 1).bool()
    tile, bit = held.nonzero(as_tuple=True)
    rows = 4 * tile_rows[tile] + bit // 4
    columns = 4 * tile_cols[tile].long() + bit % 4
    return _compress(rows, columns, num_rows)


def slice_edges(
    local_indices: Tensor,
    group_steps: Tensor,
    group_places: Tensor,
    slice_groups: Tensor,
    row_slots: Tensor,
    row_items: Tensor,
    slice_size: int,
    places: int,
) -> tuple[Tensor, Tensor]:
    """Row pointer and column indices of the sliced layout; see ``bitgnn.bits.layouts``."""
    device = local_indices.device

    def numbers(counts: Tensor) -> Tensor:
        return torch.repeat_interleave(torch.arange(len(counts), device=device), counts.long())

    row_of_place = torch.full((places,), -1, dtype=torch.int64, device=device)
    row_of_place[row_items.long() >> 1] = numbers(row_slots.diff())
    lanes = torch.arange(32, device=device)
    units = 2 + (group_places.long() & 1)
    place = (group_places.long() >> 1).unsqueeze(1) + lanes * units.unsqueeze(1)
    group = numbers(group_steps.diff())
    local = (local_indices.long() & 0xFFFF).view(len(group), 32, 4)
    held = local != slice_size
    columns = local + (numbers(slice_groups.diff())[group] * slice_size).view(-1, 1, 1)
    rows = row_of_place[place[group]].unsqueeze(2).expand_as(local)
    return _compress(rows[held], columns[held], len(row_slots) - 1)


def _compress(rows: Tensor, columns: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """Sort edges by row and make the row pointer."""
    order = torch.argsort(rows, stable=True)
    rowptr = torch.zeros(num_rows + 1, dtype=torch.int64, device=rows.device)
    rowptr[1:] = torch.bincount(rows, minlength=num_rows).cumsum(0)
    return rowptr, columns[order]
