"""Runs a frozen model as CUDA graphs: one launch a call, one graph for each input it has seen."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bitgnn._collector import collector_paused
from bitgnn.bits import BitAdjacency, BitImages, BitTensor
from bitgnn.bits.tensor_version import Watch
from bitgnn.inference.bound_program import Inputs
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.graph_program import Graph

__all__ = ["CudaGraphExecutor"]

WARM_UPS = 2
"""Eager calls before a capture: they build layouts and load kernels, which it could not."""
DEFAULT_GRAPHS = 8

Key = tuple[Any, ...]

_capturing = threading.Lock()
"""One capture at a time in this process: warm-ups of another would end it."""


@dataclass
class _Captured:
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
    output: Tensor
    owns_input: bool = False


class CudaGraphExecutor:
    """Calls of a frozen model, each replayed as one CUDA graph.

    A graph is captured at the first call with features of a new form, shape or dtype or with
    another adjacency object, and kept for later calls; beyond ``max_graphs`` the one used longest
    ago goes. It is captured anew once its adjacency was written to or holds other tensors, and all
    of them are once the model was moved, loaded into or written to.

    Inputs of a first call are read where they lie: writing new values into the same tensor and
    calling again costs no copy. Another tensor of the same shape is copied into a buffer of the
    executor's own. Calls share these buffers: make them one after the other, on one stream.

    Args:
        model: frozen model on a CUDA device.
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
        if max_graphs < 1:
            raise ValueError(f"CudaGraphExecutor: max_graphs must be at least 1, got {max_graphs}")
        self.model = model
        self.max_graphs = max_graphs
        self.reuse_output = reuse_output
        self._captured: OrderedDict[Key, _Captured] = OrderedDict()
        self._follow_model()

    @property
    def num_graphs(self) -> int:
        """Graphs held now."""
        return len(self._captured)

    @torch.no_grad()
    def __call__(self, x: Inputs, adjacency: Graph | None = None) -> Tensor:
        """Scores of each node, as :meth:`FrozenModel.forward` gives them.

        Args:
            x: features in any form the model takes, on the model's device.
            adjacency: result of :meth:`FrozenModel.prepare_graph`, or None for a model without a
                graph.

        Returns:
            ``[N, out_channels]`` float32.

        Raises:
            TypeError: ``x`` or ``adjacency`` has not one of these forms.
            ValueError: what the model itself refuses, or it has left the CUDA devices.
            RuntimeError: the current stream is being captured.
            torch.OutOfMemoryError: there is no memory for another graph. Those held stay.
        """
        if not isinstance(x, Inputs):
            raise TypeError(
                "CudaGraphExecutor: x must be a tensor or the result of pack_features, "
                f"got {type(x).__name__}"
            )
        if not isinstance(adjacency, Graph | None):
            raise TypeError(
                "CudaGraphExecutor: adjacency must come from prepare_graph, got "
                f"{type(adjacency).__name__}; a conversion cannot be captured"
            )
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "CudaGraphExecutor: the current stream is being captured, which cannot hold "
                "another graph's capture or replay; call the model itself there"
            )
        if self._is_stale():
            self._follow_model()
        key = _key(x, adjacency)
        held = self._captured.get(key)
        if held is not None and adjacency is not None:
            held = held if held.watch.unchanged(adjacency.tensors) else None
        if held is None:
            held = self._capture(x, adjacency)
            self._keep(key, held)
        else:
            self._captured.move_to_end(key)
        if held.places != _places(x):
            held = self._take(key, held, x)
        with torch.cuda.device(self.device):
            held.graph.replay()
        return held.output if self.reuse_output else tree_map(Tensor.clone, held.output)

    def _is_stale(self) -> bool:
        """Whether the model's tensors are others than the graphs read, or were written to."""
        if self._times_bound != self.model.times_bound:
            return True
        # Modules of the user's own may exchange their parameters unseen.
        now = _tensors(self.model) if self.model.calls is not None else None
        return not self._weights.unchanged(now)

    def _follow_model(self) -> None:
        """Forget every graph and look where the model is now."""
        self._captured.clear()
        tensors = _tensors(self.model)
        device = next((tensor.device for tensor in tensors), torch.device("cpu"))
        if device.type != "cuda":
            raise ValueError(f"CudaGraphExecutor: model must be on a CUDA device, got {device}")
        self.device = device
        self._times_bound = self.model.times_bound
        self._weights = Watch(tensors)

    def _keep(self, key: Key, held: _Captured) -> None:
        self._captured[key] = held
        self._captured.move_to_end(key)
        while len(self._captured) > self.max_graphs:
            self._captured.popitem(last=False)

    def _take(self, key: Key, held: _Captured, x: Inputs) -> _Captured:
        """Bring features to where the graph reads; a tensor of the caller's is never written."""
        if not held.owns_input:
            held = self._capture(_clone(x), held.adjacency)
            held.owns_input = True
            self._keep(key, held)
        _copy(held.x, x)
        return held

    def _capture(self, x: Inputs, adjacency: Graph | None) -> _Captured:
        device = torch.cuda.device(self.device)
        with _capturing, collector_paused(), device, self._reporting_memory():
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    self.model(x, adjacency)
            torch.cuda.current_stream().wait_stream(stream)
            watch = Watch(() if adjacency is None else adjacency.tensors)
            graph = torch.cuda.CUDAGraph()
            capture = torch.cuda.graph(
                graph,
                stream=torch.cuda.Stream(priority=CAPTURE_PRIORITY),
                capture_error_mode=ERROR_MODE,
            )
            with _current_stream_kept(), capture:
                output = self.model(x, adjacency)
        return _Captured(graph, x, _places(x), adjacency, watch, output)

    @contextmanager
    def _reporting_memory(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            cause = _out_of_memory(error)
            if cause is None:
                raise
            raise torch.OutOfMemoryError(
                "CudaGraphExecutor: no memory to capture another graph, which needs its own for "
                f"all intermediate results; the {self.num_graphs} held go on working. Call the "
                f"model itself, or lower max_graphs (now {self.max_graphs}): {cause}"
            ) from error


ERROR_MODE = "thread_local"
"""Other threads, such as those of data loaders, may allocate while a graph is captured."""
CAPTURE_PRIORITY = -1
"""Streams of each priority come in turn from a small pool, so that one of the usual priority may be
the very stream that another thread works on: what it launches would be captured as well."""


@contextmanager
def _current_stream_kept() -> Iterator[None]:
    """Come back to the current stream even where a failed capture stays on its own."""
    current = torch.cuda.current_stream()
    try:
        yield
    finally:
        torch.cuda.set_stream(current)


def _out_of_memory(error: BaseException) -> BaseException | None:
    """The lack of memory behind an error: the end of a broken capture may hide it.

    An operator that allocates reports it as a plain error, by its words.
    """
    found: BaseException | None = error
    while found is not None and "out of memory" not in str(found).lower():
        found = found.__context__
    return found


def _tensors(model: FrozenModel) -> list[Tensor]:
    return [*model.buffers(), *model.parameters()]


def _parts(x: Inputs) -> tuple[Tensor, ...]:
    """The tensors that features consist of."""
    if isinstance(x, BitTensor | BitImages):
        return (x.words,) if x.scale is None else (x.words, x.scale)
    if isinstance(x, Tensor):
        return (x,)
    return tuple(part for part in x.tensors if part is not None)


def _places(x: Inputs) -> list[int]:
    return [part.data_ptr() for part in _parts(x)]


def _key(x: Inputs, adjacency: Graph | None) -> Key:
    parts = tuple((part.shape, part.stride(), part.dtype, part.device) for part in _parts(x))
    # The captured graph holds the adjacency, so its identity is not given to another one.
    return isinstance(x, BitTensor) or type(x), tuple(x.shape), parts, id(adjacency)


def _clone(x: Inputs) -> Inputs:
    if isinstance(x, Tensor | BitTensor | BitImages):
        return x.clone()
    row, col = (None if factor is None else factor.clone() for factor in (x.row_scale, x.col_scale))
    return BitAdjacency(x.rowptr.clone(), x.indices.clone(), x.num_cols, row, col)


def _copy(held: Inputs, x: Inputs) -> None:
    for target, source in zip(_parts(held), _parts(x), strict=True):
        target.copy_(source)
