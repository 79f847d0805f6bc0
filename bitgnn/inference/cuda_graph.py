"""Runs a frozen model as CUDA graphs: one launch a call, one graph for each input it has seen."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.inference.frozen_model import Features, FrozenModel, Graph

__all__ = ["CudaGraphExecutor"]

WARM_UPS = 2
"""Eager calls before a capture: they build layouts and load kernels, which it could not."""
DEFAULT_GRAPHS = 8

Key = tuple[Any, ...]


@dataclass
class _Captured:
    """One graph with what its kernels read and write; holding the tensors keeps their addresses."""

    graph: torch.cuda.CUDAGraph
    x: Features
    adjacency: Graph | None
    output: Tensor
    owns_input: bool = False


class CudaGraphExecutor:
    """Calls of a frozen model, each replayed as one CUDA graph.

    A graph is captured at the first call with features of a new form, shape or dtype or with
    another adjacency object, and kept for later calls; beyond ``max_graphs`` the one used longest
    ago goes. Features of a first call are read where they lie: writing new values into the same
    tensor and calling again costs no copy. Another tensor of the same shape is copied into a
    buffer of the executor's own.

    Args:
        model: frozen model on a CUDA device. Its buffers must stay where they are: after a move or
            a load into them, make a new executor.
        max_graphs: graphs to keep, at least 1.
        reuse_output: return the graph's own output, which the next call with the same inputs
            overwrites, instead of a copy.

    Raises:
        TypeError: ``model`` is not a frozen model.
        ValueError: ``model`` is not on a CUDA device, or ``max_graphs`` is below 1.
    """

    def __init__(
        self, model: FrozenModel, max_graphs: int = DEFAULT_GRAPHS, reuse_output: bool = False
    ) -> None:
        if not isinstance(model, FrozenModel):
            raise TypeError(
                f"CudaGraphExecutor: model must be a FrozenModel, got {type(model).__name__}"
            )
        device = next((buffer.device for buffer in model.buffers()), torch.device("cpu"))
        if device.type != "cuda":
            raise ValueError(f"CudaGraphExecutor: model must be on a CUDA device, got {device}")
        if max_graphs < 1:
            raise ValueError(f"CudaGraphExecutor: max_graphs must be at least 1, got {max_graphs}")
        self.model = model
        self.device = device
        self.max_graphs = max_graphs
        self.reuse_output = reuse_output
        self._captured: OrderedDict[Key, _Captured] = OrderedDict()

    @property
    def num_graphs(self) -> int:
        """Graphs held now."""
        return len(self._captured)

    @torch.inference_mode()
    def __call__(self, x: Features, adjacency: Graph | None = None) -> Tensor:
        """Scores of each node, as :meth:`FrozenModel.forward` gives them.

        Args:
            x: features in any form the model takes, on the model's device.
            adjacency: result of :meth:`FrozenModel.prepare_graph`, or None for a model without a
                graph.

        Returns:
            ``[N, out_channels]`` float32.

        Raises:
            TypeError: ``adjacency`` is not a prepared graph.
            ValueError: what the model itself refuses.
        """
        if isinstance(adjacency, Tensor):
            raise TypeError(
                "CudaGraphExecutor: adjacency must come from prepare_graph, got a tensor; "
                "a conversion cannot be captured"
            )
        key = _key(x, adjacency)
        held = self._captured.get(key)
        if held is None:
            held = self._capture(x, adjacency)
            self._captured[key] = held
            while len(self._captured) > self.max_graphs:
                self._captured.popitem(last=False)
        else:
            self._captured.move_to_end(key)
            if not _same_storage(held.x, x):
                held = self._take(key, held, x)
        with torch.cuda.device(self.device):
            held.graph.replay()
        return held.output if self.reuse_output else held.output.clone()

    def _take(self, key: Key, held: _Captured, x: Features) -> _Captured:
        """Bring features to where the graph reads; a tensor of the caller's is never written."""
        if not held.owns_input:
            held = self._capture(_clone(x), held.adjacency)
            held.owns_input = True
            self._captured[key] = held
        _copy(held.x, x)
        return held

    def _capture(self, x: Features, adjacency: Graph | None) -> _Captured:
        with torch.cuda.device(self.device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    self.model(x, adjacency)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                output = self.model(x, adjacency)
        return _Captured(graph, x, adjacency, output)


def _parts(x: Features) -> tuple[Tensor, ...]:
    """The tensors that features consist of."""
    if isinstance(x, Tensor):
        return (x,)
    if isinstance(x, BitTensor):
        return (x.words,) if x.scale is None else (x.words, x.scale)
    return tuple(part for part in (x.rowptr, x.indices, x.row, x.col) if part is not None)


def _key(x: Features, adjacency: Graph | None) -> Key:
    parts = tuple((part.shape, part.stride(), part.dtype, part.device) for part in _parts(x))
    # The captured graph holds the adjacency, so its identity is not given to another one.
    return type(x), tuple(x.shape), parts, id(adjacency)


def _same_storage(held: Features, x: Features) -> bool:
    return all(a.data_ptr() == b.data_ptr() for a, b in zip(_parts(held), _parts(x), strict=True))


def _clone(x: Features) -> Features:
    if isinstance(x, Tensor):
        return x.clone()
    if isinstance(x, BitTensor):
        return BitTensor(x.words.clone(), x.size, None if x.scale is None else x.scale.clone())
    row, col = (None if factor is None else factor.clone() for factor in (x.row, x.col))
    return BitAdjacency(x.rowptr.clone(), x.indices.clone(), x.num_cols, row, col)


def _copy(held: Features, x: Features) -> None:
    for target, source in zip(_parts(held), _parts(x), strict=True):
        target.copy_(source)
