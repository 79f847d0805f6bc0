"""capture: a forward of a frozen model on inputs of one form, ready to run again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from bitgnn._capture import capturing
from bitgnn.bits import BitAdjacency, BitImages, BitTensor, Int8Tensor
from bitgnn.bits.tensor_version import Watch, are_same
from bitgnn.inference.bound_program import Inputs
from bitgnn.inference.frozen import Frozen
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.graph import Graph
from bitgnn.inference.own_call import hand_out
from bitgnn.inference.recording import Recording
from bitgnn.inference.sparse_features import is_sparse

WARM_UPS = 2
"""Calls before a capture: they build layouts and load kernels, which it could not."""
DEVICE = "cuda"
Form = Literal["cuda_graph", "recording", "calls"]

_one_capture = threading.Lock()
"""One capture at a time in this process: warm-ups of another would end it."""


def capture(model: Frozen, x: Any, graph: Graph | None = None) -> Captured:
    """Make a call of a frozen model ready to run again and again.

    On a GPU all operators become one CUDA graph, which reads ``x`` where it lies; on a CPU one
    call runs all of them in C++. Results are those of ``model(x, graph)``, bit for bit.

    Args:
        model: the frozen model.
        x: features in any form the model takes, on the model's device. New values may be written
            into the same tensor between runs.
        graph: result of :meth:`FrozenModel.prepare_graph`, or None for a model without a graph.

    Returns:
        The call: ``run()`` gives the result for ``x`` as it is then.

    Raises:
        TypeError: ``model`` is not a frozen model, or ``graph`` does not come from
            ``prepare_graph``.
        ValueError: what the model itself refuses.
        RuntimeError: the current stream is being captured.
        torch.OutOfMemoryError: there is no memory for a CUDA graph.
    """
    if not isinstance(model, Frozen):
        raise TypeError(f"capture: model must be a frozen model, got {type(model).__name__}")
    if not isinstance(graph, Graph | None):
        raise TypeError(
            f"capture: graph must come from prepare_graph, got {type(graph).__name__}; a "
            "conversion cannot be captured"
        )
    return Captured(model, x, graph)


class Captured:
    """A call of a frozen model on features of one form and one graph; :func:`capture` makes it.

    It is made anew, at the price of the first time, once the model was moved, loaded into or
    written to where calls derived something from its tensors, or once the graph was written to.

    Attributes:
        form: ``"cuda_graph"``; ``"recording"``, the operators' calls run in C++; or ``"calls"``,
            the model itself, where neither can be.
        why: why it is ``"calls"``, empty otherwise.
    """

    def __init__(self, model: Frozen, x: Any, graph: Graph | None) -> None:
        self.model, self.x, self.graph = model, x, graph
        self.form: Form
        self.why: str
        self._run: Callable[[], Any] = partial(model, x, *([] if graph is None else [graph]))
        self._held: _CudaGraph | None = None
        self._others: _CudaGraph | None = None
        self._recording: Recording | None = None
        self._times_bound = 0
        self._make()

    def __call__(self, x: Any = None, *, out: Tensor | None = None) -> Any:
        """Result for features of the captured form.

        Args:
            x: other features of the same form; a GPU copies them first. None for those captured,
                as they are now.
            out: the result is written there; its shape, dtype and device must be the result's.

        Returns:
            The result. That of a CUDA graph lies in memory of its own, which the next run
            overwrites.

        Raises:
            TypeError: ``x`` is no features.
            ValueError: ``x`` has another form than the captured features, or ``out`` does not fit.
            RuntimeError: the current stream is being captured.
        """
        if self.form == "calls" and not self.why:
            self._make()  # the last attempt failed
        if x is None or x is self.x:
            result = self._recorded() if self._held is None else self._replayed(self._held)
        else:
            result = self._of_others(x)
        return result if out is None else hand_out("capture", result, out)

    def _recorded(self) -> Any:
        if self._recording is None:
            return self._run()
        is_bound = self._times_bound == self.model.times_bound
        if not (is_bound and self._recording.serves(self.x, self.graph)):
            self._make()
        return self._run() if self._recording is None else self._recording.run(self.x)

    def _replayed(self, held: _CudaGraph) -> Any:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(_IN_CAPTURE)
        if not held.is_current():
            if held is not self._held:
                self._others = held = self._captured(held.x)
            else:
                self._make()
                return self._run() if self._held is None else self._replayed(self._held)
        held.graph.replay()
        return held.output

    def _of_others(self, x: Any) -> Any:
        """The result for other features than those captured."""
        _check_form(self.x, x)
        if self._held is None:
            return self.model(x, *([] if self.graph is None else [self.graph]))
        if self._others is None:
            with torch.inference_mode(False), torch.no_grad():
                own = _clone(x)  # made in inference mode, it could not be written to outside
            self._others = self._captured(own)
        with torch.no_grad():
            for target, source in zip(self._others.parts, _parts(x), strict=True):
                target.copy_(source)
        return self._replayed(self._others)

    def _make(self) -> None:
        """Bind the call to the model, the features and the graph as they are now."""
        model, x = self.model, self.x
        self._held = self._others = self._recording = None
        self.form, self.why = "calls", ""
        if not isinstance(model, FrozenModel) or not model.is_program:
            self.why = "it runs the user's own forward"
            return
        self._run()  # which says what does not fit
        if is_sparse(x) or not isinstance(x, Inputs):
            self.why = "its features are converted anew by every call"
            return
        if x.device.type != DEVICE:
            self._recording = model.recording_for(x, self.graph)
            self._times_bound = model.times_bound
            if self._recording is None:
                self.why = "operators other than ours take part"
            else:
                self.form = "recording"
            return
        try:
            self._held, self.form = self._captured(x), "cuda_graph"
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # the user's own code may wait for the GPU
            if model.calls is None:
                raise
            self.why = f"{type(error).__name__}: {error}"

    @torch.no_grad()
    def _captured(self, x: Inputs) -> _CudaGraph:
        """A CUDA graph that reads these features where they lie."""
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(_IN_CAPTURE)
        model, graph = self.model, self.graph
        assert isinstance(model, FrozenModel)
        try:
            with _one_capture, torch.cuda.device(x.device):
                stream = torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    for _ in range(WARM_UPS):
                        model(x, graph)
                torch.cuda.current_stream().wait_stream(stream)
                watches = [*model._watches(x), Watch(() if graph is None else graph.tensors)]
                made = torch.cuda.CUDAGraph()
                with capturing(made):
                    output = model(x, graph)
        except RuntimeError as error:
            cause = _out_of_memory(error)
            if cause is None:
                raise
            raise torch.OutOfMemoryError(
                "capture: no memory for a CUDA graph, which needs its own for all intermediate "
                f"results; call the model itself: {cause}"
            ) from error
        return _CudaGraph(made, model, x, graph, watches, output)


_IN_CAPTURE = (
    "capture: the current stream is being captured, which cannot hold another graph's capture or "
    "replay; call the model itself there"
)


@dataclass
class _CudaGraph:
    """A CUDA graph and what its kernels read and write; holding the tensors keeps their places."""

    graph: torch.cuda.CUDAGraph
    model: FrozenModel
    x: Inputs
    adjacency: Graph | None
    watches: list[Watch]
    output: Any

    def __post_init__(self) -> None:
        self.parts = _parts(self.x)
        self._places = [part.data_ptr() for part in self.parts]
        self._layout = _layout(self.parts)
        self._times_bound = self.model.times_bound
        # Modules of the user's own may exchange their parameters unseen.
        self._own = Watch(_tensors(self.model)) if self.model.calls is not None else None
        # A tensor that ``.data`` was set of lies elsewhere, which no count tells.
        self._buffers = list(self.model.buffers())
        self._buffers_at = [buffer.data_ptr() for buffer in self._buffers]

    def is_current(self) -> bool:
        """True if the tensors are those captured, where they lay, and nothing derived is stale."""
        *derived, graph = self.watches
        parts = _parts(self.x)
        return (
            self.model.times_bound == self._times_bound
            and are_same(parts, self.parts)
            and [part.data_ptr() for part in parts] == self._places
            and _layout(parts) == self._layout
            and [buffer.data_ptr() for buffer in self._buffers] == self._buffers_at
            and graph.unchanged(None if self.adjacency is None else self.adjacency.tensors)
            and all(watch.unchanged() for watch in derived)
            and (self._own is None or self._own.unchanged(_tensors(self.model)))
        )


def _check_form(captured: Any, x: Any) -> None:
    """Refuse features that differ from those captured in more than their values."""
    expected, found = _form(captured), _form(x)
    if type(x) is not type(captured) or found != expected:
        raise ValueError(
            f"capture: x must be like the captured features, {type(captured).__name__} of "
            f"{expected}, got {type(x).__name__} of {found}; capture such calls apart"
        )


def _form(x: Any) -> Any:
    """Shape, dtype, device and layout of features, and the scales of 8-bit rows."""
    if not isinstance(x, Inputs):
        return tuple(x.shape) if isinstance(x, Tensor) else None
    scales = x.fingerprint if isinstance(x, Int8Tensor) else None
    parts = ((tuple(part.shape), part.dtype, part.device, part.layout) for part in _parts(x))
    return tuple(x.shape), *parts, scales


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
    if isinstance(x, Tensor):
        return (x,)
    if isinstance(x, BitTensor | BitImages):
        return (x.words,) if x.scale is None else (x.words, x.scale)
    if isinstance(x, Int8Tensor):
        return (x.codes,)
    return tuple(part for part in x.tensors if part is not None)


def _layout(parts: tuple[Tensor, ...]) -> list[Any]:
    return [(part.shape, part.stride()) for part in parts]


def _clone(x: Inputs) -> Inputs:
    """The same features in memory of their own."""
    if isinstance(x, Tensor | BitTensor | BitImages | Int8Tensor):
        return x.clone()
    rowptr, indices, *weights = (None if part is None else part.clone() for part in x.tensors)
    return BitAdjacency._trusted(rowptr, indices, x.num_cols, *weights)
