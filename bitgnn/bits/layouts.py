"""FRDC 4 x 4 bit tiles of a pattern in CSR, the order of its rows, and what layouts share."""

from dataclasses import dataclass

import torch
from torch import Tensor

TILE = 4
"""Rows and columns of an FRDC tile."""

FRDC_METHODS = ("if_else", "and_andnot", "and_degree")
"""Ways to reconcile 0/1 with +-1 on FRDC tiles, in the order of their number in the operators."""

INT32_MAX = 2**31 - 1
"""Largest number that layouts keep in 32 bits."""

DEGREE_BITS = 32

ORDER_STEP = 32
"""Edges that a few lanes take at a time, as in csrc/pairs/arguments.h."""


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
    """Int64 ``[len + 1]``: sums of what comes before."""
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
