"""Layouts of a pattern in CSR: FRDC 4 x 4 bit tiles, column slices, and the order of its rows."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TILE = 4
"""Rows and columns of an FRDC tile."""


INT32_MAX = 2**31 - 1
"""Largest number that layouts keep in 32 bits."""

DEGREE_BITS = 32

ORDER_STEP = 32
"""Edges that a few lanes take at a time, as in csrc/pairs/arguments.h."""
LANES = 32
"""Items of a group; a GPU's warp takes one each."""
STEP = 4
"""Neighbours of an item that are read together."""
ITEM_EDGES = 63
"""Maximum degree of an item."""
SMALL_ITEM_EDGES = 15
"""Maximum degree of an item in a group with small counters."""
MAX_SLICE_SIZE = 65535
"""Columns of a slice at most; one more 16-bit number marks a missing neighbour."""
SLICE_ROW_BYTES = 16
"""Bytes of a row that a slice in shared memory holds at a time."""
DEFAULT_SHARED_BYTES = 227 * 1024
"""Shared memory of a block assumed where there is no device to ask (Hopper's)."""
RESERVED_SHARED_BYTES = 2048
"""Shared memory that a block needs for other things."""
_BANKED_ROWS = 8
"""Adjacent rows of a slice that are in different banks of shared memory."""


@dataclass(frozen=True, eq=False)
class FrdcLayout:
    """Non-empty 4 x 4 bit tiles of a 0/1 pattern, compressed by tile row (FRDC, BitGNN 3.2.1).

    Attributes:
        tile_rowptr: int32 or int64 ``[ceil(num_rows / 4) + 1]``, first tile of each tile row.
        tile_cols: int32 ``[T]``, column index of each tile, ascending in a tile row.
        tiles: int16 ``[T]``; bit ``4 * r + c`` is entry (row ``4 * R + r``, column ``4 * C + c``).
        num_rows: rows of the pattern.
        num_cols: columns of the pattern.
    """

    tile_rowptr: Tensor
    tile_cols: Tensor
    tiles: Tensor
    num_rows: int
    num_cols: int

    @property
    def nbytes(self) -> int:
        """Bytes of the three tensors."""
        return self.tile_rowptr.nbytes + self.tile_cols.nbytes + self.tiles.nbytes


def offsets(counts: Tensor) -> Tensor:
    """Int64 ``[len + 1]``: prefix sums from 0."""
    sums = torch.zeros(len(counts) + 1, dtype=torch.int64, device=counts.device)
    torch.cumsum(counts, 0, out=sums[1:])
    return sums


def pointer_dtype(num_edges: int) -> torch.dtype:
    """Smallest dtype that counts ``num_edges`` edges."""
    return torch.int32 if num_edges <= INT32_MAX else torch.int64


def row_indices(rowptr: Tensor) -> Tensor:
    """Int64 ``[E]``: the row of each edge."""
    rows = torch.arange(len(rowptr) - 1, device=rowptr.device)
    return torch.repeat_interleave(rows, rowptr.diff().long())


def as_int16(pattern: Tensor) -> Tensor:
    """Values in [0, 65536) as int16 of the same bit pattern."""
    return torch.where(pattern >= 2**15, pattern - 2**16, pattern).to(torch.int16)


def build_frdc(rowptr: Tensor, indices: Tensor, num_cols: int) -> FrdcLayout | None:
    """FRDC tiles of a pattern in CSR, or None where an edge occurs twice (a tile has one bit)."""
    num_rows = len(rowptr) - 1
    tile_rows, tile_columns = -(-num_rows // TILE), max(1, -(-num_cols // TILE))
    rows, columns = row_indices(rowptr), indices.long()
    # One key orders by tile and, inside it, by bit: equal keys are duplicate edges.
    bit = TILE * (rows % TILE) + columns % TILE
    key = ((rows // TILE) * tile_columns + columns // TILE) * TILE**2 + bit
    key = torch.sort(key).values
    if bool((key[1:] == key[:-1]).any()):
        return None
    tile, owner = torch.unique_consecutive(key // TILE**2, return_inverse=True)
    pattern = torch.zeros(len(tile), dtype=torch.int32, device=rowptr.device)
    # Without duplicates a sum of powers of two is their bitwise or.
    one = torch.ones((), dtype=torch.int32, device=rowptr.device)
    pattern.index_add_(0, owner, one << (key % TILE**2).to(torch.int32))
    per_row = torch.bincount(tile // tile_columns, minlength=tile_rows)
    return FrdcLayout(
        tile_rowptr=offsets(per_row).to(pointer_dtype(len(tile))),
        tile_cols=(tile % tile_columns).to(torch.int32),
        tiles=as_int16(pattern),
        num_rows=num_rows,
        num_cols=num_cols,
    )


def build_row_order(rowptr: Tensor) -> Tensor:
    """Int64 ``[M, 2]``: the first edge of each row, and ``degree + row * 2**32``.

    Rows come by descending ``degree // 32``, those of one such step as they lie; degrees are below
    2**31. Waits for the device, so that every stream may read the result.
    """
    degree = rowptr.diff().long()
    rows = torch.sort(degree // ORDER_STEP, descending=True, stable=True).indices
    order = torch.stack([rowptr[rows].long(), degree[rows] + (rows << DEGREE_BITS)], dim=1)
    if order.is_cuda:
        torch.cuda.current_stream(order.device).synchronize()
    return order


@dataclass(frozen=True, eq=False)
class SlicedLayout:
    """A 0/1 pattern cut into column slices that fit shared memory, with 16-bit local indices.

    The neighbours of a row in one slice make items of at most ``ITEM_EDGES``; the items of a
    slice, by falling size, make groups of ``LANES``. A group takes steps; in step ``t`` lane ``l``
    holds the local indices ``[((group_steps[g] + t) * LANES + l) * STEP, ...)``, absent ones being
    ``slice_size``. Groups never cross slices. The count of an item is at a place in scratch
    memory: two units, or three in a large group, which has an item beyond ``SMALL_ITEM_EDGES``.

    """

    rowptr: Tensor
    """int32 or int64 ``[num_rows + 1]``, of the pattern itself."""
    local_indices: Tensor
    """int16 (a uint16 pattern), column minus the slice's first."""
    group_steps: Tensor
    """int32 ``[groups + 1]``, first step of each group."""
    group_places: Tensor
    """int32 ``[groups]``, twice the first place of the group, plus 1 if large."""
    slice_groups: Tensor
    """int32 ``[slices + 1]``, first group of each slice."""
    row_slots: Tensor
    """int32 ``[num_rows + 1]``, first entry of each row in ``row_items``."""
    row_items: Tensor
    """int32, twice the place of each item, plus 1 in a large group; by row."""
    slice_size: int
    places: int
    """Units of scratch memory."""
    num_rows: int
    num_cols: int

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors, the row pointer included."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, Tensor))

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Arguments of operators over column slices, after x and the number of features."""
        return (
            self.rowptr, self.local_indices, self.group_steps, self.group_places,
            self.slice_groups, self.row_slots, self.row_items, self.slice_size, self.places,
        )  # fmt: skip


def default_slice_size(device: torch.device) -> int:
    """Columns whose pieces of ``SLICE_ROW_BYTES`` fit the shared memory of a block."""
    shared = DEFAULT_SHARED_BYTES
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        shared = getattr(properties, "shared_memory_per_block_optin", shared)
    return min(MAX_SLICE_SIZE, (shared - RESERVED_SHARED_BYTES) // SLICE_ROW_BYTES)


def build_sliced(
    rowptr: Tensor, indices: Tensor, num_cols: int, max_slice_size: int
) -> SlicedLayout:
    """Slices of at most ``max_slice_size`` columns, about equal in size."""
    if not 1 <= max_slice_size <= MAX_SLICE_SIZE:
        raise ValueError(
            f"BitAdjacency.sliced: max_slice_size must lie in [1, {MAX_SLICE_SIZE}], "
            f"got {max_slice_size}"
        )
    num_rows = len(rowptr) - 1
    num_slices = max(1, -(-num_cols // max_slice_size))
    size = max(1, -(-num_cols // num_slices))
    # A segment is a row's share of a slice; its neighbours are dealt out to as few items as hold
    # them, so that these differ by one at most.
    segment = torch.div(indices, size, rounding_mode="floor").long() * num_rows
    segment += row_indices(rowptr)
    counts = torch.bincount(segment, minlength=num_slices * num_rows)
    pieces = (counts + ITEM_EDGES - 1) // ITEM_EDGES
    first_item = offsets(pieces)
    items = _Items(counts, pieces, first_item, num_rows, num_slices)
    if 2 * items.places > INT32_MAX or int(items.group_steps[-1]) > INT32_MAX:
        raise ValueError(
            f"BitAdjacency.sliced: the pattern must need at most {INT32_MAX // 2} places, got "
            f"{items.places}; layout 'csr' has no such limit"
        )
    order = torch.argsort(segment, stable=True)
    segment = segment[order]
    local = (indices % size)[order]
    del order
    position = torch.arange(len(local), device=local.device) - offsets(counts)[segment]
    lane = items.lane_of_item[first_item[segment] + position % pieces[segment]]
    del segment, position
    # Neighbouring lanes start at different banks.
    key = lane * _BANKED_ROWS + (local - lane) % _BANKED_ROWS
    order = torch.argsort(key, stable=True)
    lane, local = lane[order], local[order]
    del key, order
    position = torch.arange(len(local), device=local.device) - offsets(items.lane_counts)[lane]
    target = (items.group_steps[lane // LANES] + position // STEP) * LANES + lane % LANES
    steps = int(items.group_steps[-1])
    padded = torch.full(
        (steps * LANES * STEP,), size, dtype=torch.int32, device=local.device
    ).scatter_(0, target * STEP + position % STEP, local.int())
    return SlicedLayout(
        rowptr=rowptr,
        local_indices=as_int16(padded),
        group_steps=items.group_steps.int(),
        group_places=items.group_places.int(),
        slice_groups=items.slice_groups.int(),
        row_slots=items.row_slots.int(),
        row_items=items.row_items.int(),
        slice_size=size,
        places=items.places,
        num_rows=num_rows,
        num_cols=num_cols,
    )


class _Items:
    """Destination of every item: its lane, and the place of its count.

    Lanes are numbered through all groups; a slice starts with a group of its own.
    """

    def __init__(
        self, counts: Tensor, pieces: Tensor, first_item: Tensor, num_rows: int, num_slices: int
    ) -> None:
        device = counts.device
        number = int(first_item[-1])
        owner = torch.repeat_interleave(torch.arange(len(counts), device=device), pieces)
        piece = torch.arange(number, device=device) - first_item[owner]
        item_counts = (counts[owner] + pieces[owner] - 1 - piece) // pieces[owner]
        slices, rows = (owner // num_rows, owner % num_rows) if num_rows else (owner, owner)
        by_size = torch.argsort(slices * (ITEM_EDGES + 1) + ITEM_EDGES - item_counts, stable=True)
        per_slice = torch.bincount(slices, minlength=num_slices)
        self.slice_groups = offsets((per_slice + LANES - 1) // LANES)
        sorted_slices = slices[by_size]
        rank = torch.arange(number, device=device) - offsets(per_slice)[sorted_slices]
        self.lane_of_item = torch.empty(number, dtype=torch.int64, device=device)
        self.lane_of_item[by_size] = self.slice_groups[sorted_slices] * LANES + rank
        groups = int(self.slice_groups[-1])
        self.lane_counts = torch.zeros(groups * LANES, dtype=torch.int64, device=device)
        self.lane_counts[self.lane_of_item] = item_counts
        largest = self.lane_counts.view(groups, LANES).amax(1) if groups else self.lane_counts
        self.group_steps = offsets((largest + STEP - 1) // STEP)
        large = (largest > SMALL_ITEM_EDGES).long()
        first_place = offsets(LANES * (2 + large))
        self.places = int(first_place[-1])
        self.group_places = 2 * first_place[:-1] + large
        self.row_slots = offsets(torch.bincount(rows, minlength=num_rows))
        lane = self.lane_of_item[torch.argsort(rows, stable=True)]
        group = lane // LANES
        self.row_items = self.group_places[group] + 2 * (lane % LANES) * (2 + large[group])
