"""BlockedAdjacency: a pattern at two bytes an edge, in column blocks alone."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from bitgnn.bits import _pytrees
from bitgnn.bits.adjacency import BitAdjacency
from bitgnn.bits.layouts import MAX_BLOCK_SIZE, BlockedLayout


class BlockedAdjacency:
    """``A[i, j] = row[i] * pattern[i, j] * col[j]`` with 16-bit column indices and no CSR.

    Half of what :class:`BitAdjacency` takes, for graphs whose edges are most of the memory. Packed
    rows are aggregated from it, and rows of small integers; floats need the CSR.

    Args:
        blocks: the pattern, as :meth:`BitAdjacency.blocked` gives it.
        row: float32 ``[M]``, or None for 1.
        col: float32 ``[N]``, or None for 1.
    """

    def __init__(
        self, blocks: BlockedLayout, row: Tensor | None = None, col: Tensor | None = None
    ) -> None:
        self._blocks = blocks
        self.row = row
        self.col = col

    @classmethod
    def from_adjacency(
        cls, adjacency: BitAdjacency, block_size: int = MAX_BLOCK_SIZE
    ) -> BlockedAdjacency:
        """The same pattern and factors in column blocks.

        Raises:
            ValueError: ``block_size`` lies outside [1, 65536].
        """
        return cls(adjacency.blocked(block_size), adjacency.row, adjacency.col)

    def blocked(self) -> BlockedLayout:
        """The column blocks."""
        return self._blocks

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
        return self._blocks.block_rowptr, self._blocks.local_indices, self.row, self.col

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
    block_rowptr, local_indices, row, col = leaves
    return BlockedAdjacency(BlockedLayout(block_rowptr, local_indices, *sizes), row, col)


_pytrees.register(BlockedAdjacency, ("block_rowptr", "local_indices", "row", "col"), _split, _join)
