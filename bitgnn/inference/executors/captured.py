"""A captured CUDA graph of a frozen model, and the features that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency, BitImages, BitTensor
from bitgnn.bits.tensor_version import Watch, are_same
from bitgnn.inference.bound_program import Inputs
from bitgnn.inference.graph import Graph

__all__ = ["Captured", "Key", "clone_of", "copy_into", "key_of", "parts_of", "places_of"]

Key = tuple[Any, ...]


@dataclass
class Captured:
    """One graph with what its kernels read and write; holding the tensors keeps their addresses.

    Attributes:
        graph: what is replayed.
        x: features it reads.
        places: where they lay when it was captured.
        adjacency: graph it reads.
        watch: tells whether that graph is still what it was.
        output: what it writes.
        owns_input: whether ``x`` is the executor's own.
    """

    graph: torch.cuda.CUDAGraph
    x: Inputs
    places: list[int]
    adjacency: Graph | None
    watch: Watch
    output: Any
    owns_input: bool = False

    def __post_init__(self) -> None:
        self._parts = parts_of(self.x)
        self._layout = layout_of(self._parts)

    def reads(self, x: Inputs) -> bool:
        """Whether these are the very features it reads, where they lay and as they were then."""
        if x is not self.x:
            return False
        parts = parts_of(x)
        return (
            are_same(parts, self._parts)
            and layout_of(parts) == self._layout
            and [part.data_ptr() for part in parts] == self.places
        )


def parts_of(x: Inputs) -> tuple[Tensor, ...]:
    """The tensors that features consist of."""
    if isinstance(x, BitTensor | BitImages):
        return (x.words,) if x.scale is None else (x.words, x.scale)
    if isinstance(x, Tensor):
        return (x,)
    return tuple(part for part in x.tensors if part is not None)


def layout_of(parts: Sequence[Tensor]) -> list[Any]:
    return [(part.shape, part.stride()) for part in parts]


def places_of(x: Inputs) -> list[int]:
    """Addresses of the tensors that features consist of."""
    return [part.data_ptr() for part in parts_of(x)]


def key_of(x: Inputs, adjacency: Graph | None) -> Key:
    """What tells inputs that one captured graph serves from others."""
    parts = tuple((part.shape, part.stride(), part.dtype, part.device) for part in parts_of(x))
    # The captured graph holds the adjacency, so its identity is not given to another one.
    return isinstance(x, BitTensor) or type(x), tuple(x.shape), parts, id(adjacency)


def clone_of(x: Inputs) -> Inputs:
    """The same features in memory of their own."""
    if isinstance(x, Tensor | BitTensor | BitImages):
        return x.clone()
    row, col = (None if factor is None else factor.clone() for factor in (x.row_scale, x.col_scale))
    return BitAdjacency(x.rowptr.clone(), x.indices.clone(), x.num_cols, row, col)


def copy_into(held: Inputs, x: Inputs) -> None:
    """Write the values of features into others of the same form."""
    for target, source in zip(parts_of(held), parts_of(x), strict=True):
        target.copy_(source)
