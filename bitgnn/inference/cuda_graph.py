"""Runs a frozen model as CUDA graphs: one launch a call, one graph for each input it has seen."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bitgnn._capture import capturing
from bitgnn.bits import BitAdjacency, BitImages, BitTensor, Int8Tensor
from bitgnn.bits.tensor_version import Watch, are_same
from bitgnn.inference.bound_program import Inputs
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.graph import Graph
from bitgnn.inference.own_call import hand_out
from bitgnn.inference.sparse_features import require_dense

WARM_UPS = 2
"""Eager calls before a capture: they build layouts and load kernels, which it could not."""
DEFAULT_GRAPHS = 8
DEVICE = "cuda"

_one_capture = threading.Lock()
"""One capture at a time in this process: warm-ups of another would end it."""


class PinnedCall:
    """Calls bound to their inputs once, for callers that promise to change nothing.

    Between calls with the same ``x`` and ``adjacency``, recognised as the same objects, the model,
    the graph and the tensors of ``x`` must stay as they are; the values of ``x`` are read anew.
    Others are bound first, with the errors of the model's forward.
    """

    def __init__(self, bind: Callable[[Any, Any], Callable[[], Any]]) -> None:
        self._bind = bind
        self._x: Any = None
        self._adjacency: Any = None
        self._call: Callable[[], Any] | None = None

    def __call__(self, x: Any, adjacency: Any = None) -> Any:
        """The result for these inputs, which the next call may overwrite."""
        call = self._call
        if call is None or x is not self._x or adjacency is not self._adjacency:
            call = self._bind(x, adjacency)
            self._x, self._adjacency, self._call = x, adjacency, call
        return call()


@dataclass
class Captured:
    """One graph with what its kernels read and write; holding the tensors keeps their addresses.

    ``watch`` tells whether the adjacency is still what it was; ``owns_input`` whether ``x`` is the
    executor's own.
    """

    graph: torch.cuda.CUDAGraph
    x: Inputs
    adjacency: Graph | None
    watch: Watch
    output: Any
    owns_input: bool = False

    def __post_init__(self) -> None:
        self.parts = _parts(self.x)
        self.places = _places(self.parts)
        self._layout = _layout(self.parts)

    def reads(self, x: Inputs) -> bool:
        """Whether these are the very features it reads, where they lay and as they were then."""
        if x is not self.x:
            return False
        parts = _parts(x)
        return (
            are_same(parts, self.parts)
            and _layout(parts) == self._layout
            and _places(parts) == self.places
        )


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
        self._captured: OrderedDict[Any, Captured] = OrderedDict()
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
        """What :meth:`FrozenModel.forward` returns for features and a prepared graph.

        Args:
            x: features in any form the model takes, on the model's device.
            adjacency: result of :meth:`FrozenModel.prepare_graph`, or None for a model without a
                graph.
            out: the scores are copied there, instead of into new memory.

        Raises:
            TypeError: ``x`` or ``adjacency`` has not one of these forms, or ``out`` another dtype.
            ValueError: as the model, it has left the CUDA devices, or ``out`` does not fit.
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
        require_dense("CudaGraphExecutor", x)
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
        parts = _parts(x)
        forms = tuple((part.shape, part.stride(), part.dtype, part.device) for part in parts)
        # The captured graph holds the adjacency, so its identity is not given to another one.
        form = isinstance(x, BitTensor) or type(x)
        scales = x.fingerprint if isinstance(x, Int8Tensor) else None
        key = form, tuple(x.shape), forms, scales, id(adjacency)
        held = self._captured.get(key)
        if held is None or not (adjacency is None or held.watch.unchanged(adjacency.tensors)):
            held = self._captured[key] = self._capture(x, adjacency)
        elif held.places != _places(parts):
            if not held.owns_input:
                with torch.inference_mode(False), torch.no_grad():
                    own = _clone(x)  # made in inference mode, it could not be written to outside
                held = self._captured[key] = self._capture(own, held.adjacency)
                held.owns_input = True
            for target, source in zip(held.parts, parts, strict=True):
                target.copy_(source)
        self._captured.move_to_end(key)
        while len(self._captured) > self.max_graphs:
            self._captured.popitem(last=False)
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

    def _capture(self, x: Inputs, adjacency: Graph | None) -> Captured:
        try:
            with _one_capture, torch.cuda.device(self.device):
                stream = torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    for _ in range(WARM_UPS):
                        self.model(x, adjacency)
                torch.cuda.current_stream().wait_stream(stream)
                watch = Watch(() if adjacency is None else adjacency.tensors)
                graph = torch.cuda.CUDAGraph()
                with capturing(graph):
                    output = self.model(x, adjacency)
        except RuntimeError as error:
            cause = _out_of_memory(error)
            if cause is None:
                raise
            raise torch.OutOfMemoryError(
                "CudaGraphExecutor: no memory to capture another graph, which needs its own for "
                f"all intermediate results; the {self.num_graphs} held go on working. Call the "
                f"model itself, or lower max_graphs (now {self.max_graphs}): {cause}"
            ) from error
        return Captured(graph, x, adjacency, watch, output)


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
    if isinstance(x, Int8Tensor):
        return (x.codes,)
    if isinstance(x, Tensor):
        return (x,)
    return tuple(part for part in x.tensors if part is not None)


def _layout(parts: tuple[Tensor, ...]) -> list[Any]:
    return [(part.shape, part.stride()) for part in parts]


def _places(parts: tuple[Tensor, ...]) -> list[int]:
    return [part.data_ptr() for part in parts]


def _clone(x: Inputs) -> Inputs:
    """The same features in memory of their own."""
    if isinstance(x, Tensor | BitTensor | BitImages | Int8Tensor):
        return x.clone()
    row, col = (None if factor is None else factor.clone() for factor in (x.row_scale, x.col_scale))
    return BitAdjacency(x.rowptr.clone(), x.indices.clone(), x.num_cols, row, col)
