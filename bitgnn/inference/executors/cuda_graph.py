"""Runs a frozen model as CUDA graphs: one launch a call, one graph for each input it has seen."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bitgnn._collector import collector_paused
from bitgnn.bits.tensor_version import Watch
from bitgnn.inference.bound_program import Inputs
from bitgnn.inference.executors.captured import (
    Captured,
    Key,
    clone_of,
    copy_into,
    key_of,
    places_of,
)
from bitgnn.inference.executors.pinned import PinnedCall
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.graph import Graph
from bitgnn.inference.own_call import hand_out

__all__ = ["CAPTURE_PRIORITY", "ERROR_MODE", "CudaGraphExecutor", "current_stream_kept"]

WARM_UPS = 2
"""Eager calls before a capture: they build layouts and load kernels, which it could not."""
DEFAULT_GRAPHS = 8
DEVICE = "cuda"

_capturing = threading.Lock()
"""One capture at a time in this process: warm-ups of another would end it."""


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

    Attributes:
        pinned: called as the executor itself, but without checks and ``out``, for callers that
            promise to change nothing between calls with the same inputs but values of ``x``. It
            returns the graph's own output, which the next call overwrites.

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
        self._captured: OrderedDict[Key, Captured] = OrderedDict()
        self._last: Captured | None = None
        self.pinned = PinnedCall(self.bound_call)
        self._follow_model()

    @property
    def num_graphs(self) -> int:
        """Graphs held now."""
        return len(self._captured)

    def __call__(
        self, x: Inputs, adjacency: Graph | None = None, *, out: Tensor | None = None
    ) -> Tensor:
        """Scores of each node, as :meth:`FrozenModel.forward` gives them.

        Args:
            x: features in any form the model takes, on the model's device.
            adjacency: result of :meth:`FrozenModel.prepare_graph`, or None for a model without a
                graph.
            out: the scores are copied there, instead of into new memory.

        Returns:
            ``[N, out_channels]`` float32.

        Raises:
            TypeError: ``x`` or ``adjacency`` has not one of these forms, or ``out`` another dtype.
            ValueError: what the model itself refuses, it has left the CUDA devices, or ``out`` has
                another shape or device.
            RuntimeError: the current stream is being captured.
            torch.OutOfMemoryError: there is no memory for another graph. Those held stay.
        """
        held = self.find(x, adjacency)
        return self.replay(self._prepare(x, adjacency) if held is None else held, out=out)

    def bound_call(self, x: Inputs, adjacency: Graph | None = None) -> Callable[[], Tensor]:
        """What ``pinned`` does for these inputs, by a graph that reads them where they lie."""
        held = self._prepare(x, adjacency)
        if held.owns_input:
            with torch.no_grad():
                held = self._capture(x, adjacency)
        replay, output = held.graph.replay, held.output

        def call() -> Tensor:
            replay()
            return output

        call.__dict__["held"] = held  # its tensors live as long
        return call

    def find(self, x: Inputs, adjacency: Graph | None = None) -> Captured | None:
        """The graph of the last call, if it was one with these very tensors and all is unchanged.

        Capturing streams find none.
        """
        held = self._last
        if (
            held is None
            or held.adjacency is not adjacency
            or not held.reads(x)
            or torch.cuda.is_current_stream_capturing()
            or self._is_stale()
        ):
            return None
        return held if adjacency is None or held.watch.unchanged(adjacency.tensors) else None

    def replay(self, held: Captured, out: Tensor | None = None) -> Tensor:
        """The scores that a graph computes now, on the current stream."""
        held.graph.replay()
        if out is not None:
            return hand_out("CudaGraphExecutor", held.output, out)
        if self.reuse_output:
            return held.output
        if isinstance(held.output, Tensor):
            return held.output.clone()
        return tree_map(Tensor.clone, held.output)

    @torch.no_grad()
    def _prepare(self, x: Inputs, adjacency: Graph | None) -> Captured:
        """The graph for these inputs, captured if need be, with what it reads in place."""
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
        key = key_of(x, adjacency)
        held = self._captured.get(key)
        if held is not None and adjacency is not None:
            held = held if held.watch.unchanged(adjacency.tensors) else None
        if held is None:
            held = self._capture(x, adjacency)
            self._keep(key, held)
        else:
            self._captured.move_to_end(key)
        if held.places != places_of(x):
            held = self._take(key, held, x)
        self._last = held
        return held

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
        self._last = None
        tensors = _tensors(self.model)
        device = next((tensor.device for tensor in tensors), torch.device("cpu"))
        if device.type != DEVICE:
            raise ValueError(f"CudaGraphExecutor: model must be on a CUDA device, got {device}")
        self.device = device
        self._times_bound = self.model.times_bound
        self._weights = Watch(tensors)

    def _keep(self, key: Key, held: Captured) -> None:
        self._captured[key] = held
        self._captured.move_to_end(key)
        while len(self._captured) > self.max_graphs:
            _, gone = self._captured.popitem(last=False)
            self._last = None if self._last is gone else self._last

    def _take(self, key: Key, held: Captured, x: Inputs) -> Captured:
        """Bring features to where the graph reads; a tensor of the caller's is never written."""
        if not held.owns_input:
            with torch.inference_mode(False), torch.no_grad():
                own = clone_of(x)  # made in inference mode, it could not be written to outside
            held = self._capture(own, held.adjacency)
            held.owns_input = True
            self._keep(key, held)
        copy_into(held.x, x)
        return held

    def _capture(self, x: Inputs, adjacency: Graph | None) -> Captured:
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
            with current_stream_kept(), capture:
                output = self.model(x, adjacency)
        return Captured(graph, x, places_of(x), adjacency, watch, output)

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
def current_stream_kept() -> Iterator[None]:
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
