"""BlockedAdjacency: a pattern at two bytes an edge, in column blocks alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from torch import Tensor

from bitgnn._checks import check_value
from bitgnn.bits import _pytrees
from bitgnn.bits.adjacency import BitAdjacency
from bitgnn.bits.layouts import MAX_BLOCK_SIZE, BlockedLayout
from bitgnn.bits.watch import Watch

PARTS = 128
"""Parts in which rows are held in CSR where an aggregation needs it; a few times their edges'
bytes are needed beside the pattern."""
LEAST_PART_EDGES = 4096
"""Edges from which on it pays to have another part."""


class BlockedAdjacency:
    """``A[i, j] = row_scale[i] * pattern[i, j] * col_scale[j]`` in 16-bit columns without CSR.

    Half of what :class:`BitAdjacency` takes, for graphs whose edges are most of the memory. Packed
    rows and integers are aggregated from it directly; sums of floats take :meth:`row_parts`, which
    costs time.

    Args:
        blocks: the pattern, as :meth:`BitAdjacency.blocked` gives it.
        row_scale: float32 ``[M]``, or None for 1.
        col_scale: float32 ``[N]``, or None for 1.
    """

    def __init__(
        self,
        blocks: BlockedLayout,
        row_scale: Tensor | None = None,
        col_scale: Tensor | None = None,
    ) -> None:
        self._blocks = blocks
        self.row_scale = row_scale
        self.col_scale = col_scale
        self._ranges: list[tuple[int, int, int]] = []
        self._ranges_source: Watch | None = None

    @classmethod
    def from_adjacency(
        cls, adjacency: BitAdjacency, block_size: int = MAX_BLOCK_SIZE
    ) -> BlockedAdjacency:
        """The same pattern and factors in column blocks.

        Raises:
            ValueError: ``block_size`` lies outside [1, 65536].
        """
        return cls(adjacency.blocked(block_size), adjacency.row_scale, adjacency.col_scale)

    def blocked(self) -> BlockedLayout:
        """The column blocks."""
        return self._blocks

    def row_parts(self) -> Iterator[tuple[int, BitAdjacency]]:
        """The rows in CSR, a small part of the edges at a time, with the first row of each.

        Waits for the device on the first call and after the pattern was written to.

        Raises:
            ValueError: a compiler looks at this, for which sizes must not depend on the pattern.
        """
        check_value(
            not torch.compiler.is_compiling(),
            lambda: (
                "BlockedAdjacency: floats cannot be aggregated from column blocks in compiled or "
                "exported programs; prepare the graph with layout='csr'"
            ),
        )
        if self._ranges_source is None or not self._ranges_source.unchanged():
            self._ranges = self._find_ranges()
            self._ranges_source = Watch([self._blocks.block_rowptr])
        for first, last, edges in self._ranges:
            yield first, self._rows(first, last, edges)

    def _find_ranges(self) -> list[tuple[int, int, int]]:
        """First and last row and number of edges of each part."""
        num_rows = self.shape[0]
        degrees = self._blocks.block_rowptr.diff().view(-1, max(1, num_rows)).sum(0)
        ends = degrees.cumsum(0).cpu() if num_rows else torch.zeros(0, dtype=torch.int64)
        most = max(LEAST_PART_EDGES, -(-self.nnz // PARTS))
        ranges, first, before = [], 0, 0
        while first < num_rows:
            last = int(torch.searchsorted(ends, before + most, right=True))
            last = max(first + 1, last)  # a row of more edges is a part of its own
            end = int(ends[last - 1])
            ranges.append((first, last, end - before))
            first, before = last, end
        return ranges

    def _rows(self, first: int, last: int, edges: int) -> BitAdjacency:
        """Rows [first, last), which have so many edges, block after block in each row."""
        blocks, num_rows = self._blocks, self.shape[0]
        starts = blocks.block_rowptr[:-1].view(-1, num_rows)[:, first:last].t()
        ends = blocks.block_rowptr[1:].view(-1, num_rows)[:, first:last].t()
        sizes = (ends - starts).reshape(-1)
        offsets = sizes.new_zeros(sizes.numel() + 1, dtype=torch.int64)
        torch.cumsum(sizes, 0, out=offsets[1:])
        shift = starts.reshape(-1) - offsets[:-1]
        source = torch.repeat_interleave(shift, sizes, output_size=edges)
        source += torch.arange(edges, device=source.device)
        columns = blocks.local_indices[source].int().bitwise_and_(MAX_BLOCK_SIZE - 1)
        begins = torch.arange(starts.size(1), dtype=torch.int32, device=source.device)
        begins = (begins * blocks.block_size).repeat(last - first)
        columns += torch.repeat_interleave(begins, sizes, output_size=edges)
        row_scale = None if self.row_scale is None else self.row_scale[first:last]
        rowptr = offsets[:: starts.size(1)].to(torch.int32)
        return BitAdjacency._trusted(rowptr, columns, self.num_cols, row_scale, self.col_scale)

    def planned_layout(self, words: int) -> str:
        """``"blocked"`` for packed rows of any width."""
        return "blocked"

    @property
    def rowptr(self) -> NoReturn:
        """Not held."""
        raise ValueError(_NO_CSR)

    @property
    def indices(self) -> NoReturn:
        """Not held."""
        raise ValueError(_NO_CSR)

    @property
    def shape(self) -> tuple[int, int]:
        """``(M, N)``: destinations, sources."""
        return self._blocks.num_rows, self._blocks.num_cols

    @property
    def num_cols(self) -> int:
        """N."""
        return self._blocks.num_cols

    @property
    def nnz(self) -> int:
        """Number of edges, duplicates counted."""
        return self._blocks.local_indices.size(0)

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self._blocks.local_indices.device

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """What it consists of: pointers and indices of the blocks, and both factors."""
        return self._blocks.block_rowptr, self._blocks.local_indices, self.row_scale, self.col_scale

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks and factors."""
        return sum(tensor.nbytes for tensor in self.tensors if tensor is not None)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> BlockedAdjacency:
        """The same adjacency on another device."""
        tensors = [
            None if tensor is None else tensor.to(device, non_blocking=non_blocking)
            for tensor in self.tensors
        ]
        return _join(tensors, _split(self)[1])

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"BlockedAdjacency({rows} x {columns}, nnz={self.nnz}, device={self.device})"


_NO_CSR = (
    "BlockedAdjacency: the pattern is held in column blocks alone, without the CSR that this step "
    "reads; prepare the graph with layout='csr'"
)


def _split(adjacency: BlockedAdjacency) -> tuple[list[Any], tuple[int, int, int]]:
    blocks = adjacency.blocked()
    return list(adjacency.tensors), (blocks.block_size, blocks.num_rows, blocks.num_cols)


def _join(leaves: Any, sizes: tuple[int, int, int]) -> BlockedAdjacency:
    block_rowptr, local_indices, row_scale, col_scale = leaves
    return BlockedAdjacency(
        BlockedLayout(block_rowptr, local_indices, *sizes), row_scale, col_scale
    )


_pytrees.register(
    BlockedAdjacency, ("block_rowptr", "local_indices", "row_scale", "col_scale"), _split, _join
)
