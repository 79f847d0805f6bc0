"""The graph of the last call with plain edges, kept as long as those tensors are what they were."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

__all__ = ["GraphMemory"]


class GraphMemory:
    """A prepared graph and what it was made of, without keeping that alive.

    Args:
        edge_index: ``[2, E]``.
        edge_weight: ``[E]``, or None.
        num_nodes: nodes of the graph.
        graph: what was made of them.
    """

    def __init__(
        self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, graph: Any
    ) -> None:
        self._edges = weakref.ref(edge_index, self._forget)
        self._weight = None if edge_weight is None else weakref.ref(edge_weight, self._forget)
        self._state = _state(edge_index), _state(edge_weight), num_nodes
        self._graph: Any = graph

    def _forget(self, gone: Any) -> None:
        self._graph = None

    def graph_of(self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> Any:
        """The graph, or None where it was made of something else."""
        weight = None if self._weight is None else self._weight()
        if self._edges() is not edge_index or weight is not edge_weight:
            return None
        if self._state != (_state(edge_index), _state(edge_weight), num_nodes):
            return None
        return self._graph

    @staticmethod
    def keeps(edge_index: Any, edge_weight: Any) -> bool:
        """Whether writes to these would be noticed: dense tensors that count them."""
        if torch.compiler.is_compiling():
            return False
        return all(
            part is None
            or (
                isinstance(part, Tensor)
                and part.layout == torch.strided
                and not part.is_inference()
            )
            for part in (edge_index, edge_weight)
        )


def _state(tensor: Tensor | None) -> Any:
    if tensor is None:
        return None
    return tensor._version, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.device
