"""Recordings: a program's calls on given inputs, bound and then run by one operator.

A frozen model's forward on given inputs is a list of operator calls whose arguments are its
buffers, the graph and the features. Once such inputs come a second time, the calls are bound, and
``bitgnn::run_recording`` does all of them in C++, where every operator checks its arguments as
before. What Python decides on the way, such as the layout of a graph, is decided once.
"""

from __future__ import annotations

import functools
import struct
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency, BitFeatures, BitImages, BitTensor, Int8Tensor
from bitgnn.bits.features import Int8Features
from bitgnn.bits.tensor_version import Watch
from bitgnn.inference.executable import Instruction
from bitgnn.inference.graph import PreparedGraph
from bitgnn.inference.sparse_features import FirstBits

CALLS_TO_RECORD = 2
"""Calls on the same inputs in a row after which there is a recording, made of the second one."""

MOST_RECORDINGS = 8
"""Recordings of a model; a new one takes the place of the oldest."""

_NONE, _INTEGER, _REAL, _INTEGERS, _CONSTANT, _REGISTER = range(6)
"""Kinds of arguments, numbered as in csrc/core/recording.h."""
_VIEWS = ("aten::view", "aten::unsqueeze", "aten::slice.Tensor")
"""What the runner does beside our operators."""

Forward = Callable[..., Any]
"""Takes features, a graph, and perhaps what writes its calls down."""
Watches = Callable[[Any], list[Watch]]
_PARTS: dict[type, Callable[[Any], tuple[Tensor, Tensor | None, Any]]] = {
    Tensor: lambda x: (x, None, 0),
    BitTensor: lambda x: (x.words, x.scale, x.size),
    FirstBits: lambda x: (x.words, x.scale, x.size),
    BitFeatures: lambda x: (x.words, x.scale, x._features),
    BitImages: lambda x: (x.words, x.scale, x.channels),
    BitAdjacency: lambda x: (x.rowptr, x.indices, x.num_cols),
    Int8Tensor: lambda x: (x.codes, None, (x.size, x.fingerprint)),
    Int8Features: lambda x: (x.codes, None, (x._features, x.fingerprint)),
}
"""The tensors of features that calls read, and numbers that tell them from others of these shapes:
of features, and of the scales that 8-bit rows were packed with."""


class _Writer:
    """Writes calls down, while they run, as ``bind_recording`` takes them.

    ``inputs`` are the tensors that later runs are given in the place of these.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self.fits = True  # the runner knows all operators and all kinds of arguments
        self._inputs = self._count = len(inputs)
        self._registers = {id(tensor): number for number, tensor in enumerate(inputs)}
        self._constants: dict[int, int] = {}
        self._tensors: list[Tensor] = []
        self._results: list[Any] = []  # kept, so that no other result has the identity of one
        self._names: list[str] = []
        self._numbers: list[int] = []

    def write(self, instruction: Instruction, given: Sequence[Any], found: Any) -> None:
        """Write one call down."""
        if not self.fits:
            return
        outputs = found if isinstance(found, tuple) else (found,)
        self._results.append(outputs)
        operator = instruction.call.operator
        if found is given[0]:
            return  # nothing was done
        coded = [self._coded(value) for value in given]
        if operator.startswith("bitgnn::") or operator in _VIEWS:
            name = operator.removeprefix("bitgnn::").partition(".")[0]
            defaults = instruction.function._schema.arguments[len(given) :]  # type: ignore[attr-defined]
            coded += [self._coded(argument.default_value) for argument in defaults]
        elif _is_view(given[0], found):
            name, coded = "aten::view", [coded[0], self._coded(list(found.shape))]
        else:
            coded = [None]
        if None in coded:
            self._refuse()
            return
        places = range(self._count, self._count + len(outputs))
        self._count += len(outputs)
        self._registers.update(zip(map(id, outputs), places, strict=True))
        self._names.append(name)
        numbers = (number for numbers in coded for number in numbers or ())
        self._numbers += [len(coded), *numbers, len(outputs), *places]

    def code(self, result: Any) -> tuple[list[Tensor], str, list[int]] | None:
        """Arguments of ``bind_recording``; None where it cannot run them."""
        place = self._registers.get(id(result), 0)
        if not self.fits or place < self._inputs:
            return None
        head = [self._inputs, self._count, place]
        return self._tensors, " ".join(self._names), head + self._numbers

    def _refuse(self) -> None:
        self.fits = False
        self._tensors.clear()  # nothing is kept alive in vain
        self._results.clear()

    def _coded(self, value: Any) -> list[int] | None:
        """One argument as numbers, its kind in front; None where the runner knows none such."""
        if value is None:
            return [_NONE]
        if isinstance(value, bool | int):
            return [_INTEGER, int(value)]
        if isinstance(value, float):
            return [_REAL, *struct.unpack("q", struct.pack("d", value))]
        if isinstance(value, list | tuple) and all(type(item) is int for item in value):
            return [_INTEGERS, len(value), *value]
        if not isinstance(value, Tensor):
            return None
        if id(value) in self._registers:
            return [_REGISTER, self._registers[id(value)]]
        if id(value) not in self._constants:
            self._constants[id(value)] = len(self._tensors)
            self._tensors.append(value)
        return [_CONSTANT, self._constants[id(value)]]


def _is_view(x: Any, found: Any) -> bool:
    """True if a result is the operand in another shape."""
    return (
        isinstance(x, Tensor)
        and isinstance(found, Tensor)
        and x.dtype == found.dtype
        and x.data_ptr() == found.data_ptr()
        and x.numel() == found.numel()
        and x.is_contiguous()
        and found.is_contiguous()
    )


class Recording:
    """A bound forward, by the number that ``bind_recording`` gave, and the inputs it serves.

    ``watches`` are what else must not have been written to; ``forget`` takes the reference to the
    graph once that is gone.
    """

    def __init__(
        self,
        number: int,
        x: Any,
        graph: Any,
        watches: Sequence[Watch],
        forget: Callable[[Any], Any],
    ) -> None:
        self._operator = torch.ops.bitgnn.run_recording.default
        self._number = number
        self._parts_of = _PARTS[type(x)]
        self._form = _form_of(x)
        self.graph = _reference(graph, forget)
        self._tensors = () if graph is None else graph.tensors
        self._versions = _versions(self._tensors)
        self._watches = watches
        like = self._parts_of(x)[0].new_empty(0).detach()
        weakref.finalize(self, torch.ops.bitgnn.drop_recording, like, number).atexit = False

    def fits(self, form: Any, graph: Any) -> bool:
        """True if it serves features of this form, and the graph as it is now."""
        if self.graph() is not graph or form != self._form:
            return False
        if graph is not None and not _are_unwritten(graph.tensors, self._tensors, self._versions):
            return False
        for watch in self._watches:  # noqa: SIM110  (a generator costs as much as a small kernel)
            if not watch.unchanged():
                return False
        return True

    def serves(self, x: Any, graph: Any) -> bool:
        """True if it gives the result for these features and this graph as they are now."""
        return self.fits(_form_of(x), graph)

    def run(self, x: Any) -> Any:
        """The result for features that it fits."""
        if x.__class__ is Tensor:
            return self._operator(x, None, self._number)
        first, second, _ = self._parts_of(x)
        return self._operator(first, second, self._number)


def _nothing() -> None:
    """In place of a reference to a graph where there is none."""


def _reference(graph: Any, forget: Callable[[Any], Any] | None = None) -> Callable[[], Any]:
    """A reference that does not keep a graph alive."""
    return _nothing if graph is None else weakref.ref(graph, forget)


class Recordings:
    """The recordings of one model; threads may share them."""

    def __init__(self) -> None:
        self._recordings: tuple[Recording, ...] = ()
        self._last: tuple[Any, Callable[[], Any]] = None, _nothing
        self._refused: set[Any] = set()

    def __len__(self) -> int:
        return len(self._recordings)

    def run(self, x: Any, graph: Any, forward: Forward, watches: Watches) -> Any:
        """Result of ``forward(x, graph)``, by a recording where there is one.

        ``watches`` tells of what calls on ``x`` were made of: after a write to it they are stale.
        """
        if torch._C._len_torch_dispatch_stack() or torch._C._is_tracing():
            return forward(x, graph)
        recording = self.find(x, graph)
        if recording is not None:
            try:
                return recording.run(x)
            except RuntimeError:
                return forward(x, graph)  # which says more of an error
        form = _form_of(x) if self._can_record(x) else None
        before, last = self._last
        if form is None or form != before or last() is not graph:
            self._last = form, _reference(graph)
            return forward(x, graph)
        return self._record(x, graph, forward, watches)

    def find(self, x: Any, graph: Any) -> Recording | None:
        """The recording for these inputs as they are now."""
        if not self._recordings:
            return None
        form = _form_of(x)
        for recording in self._recordings:
            if recording.fits(form, graph):
                return recording
        return None

    def _record(self, x: Any, graph: Any, forward: Forward, watches: Watches) -> Any:
        first, second, _ = _PARTS[type(x)](x)
        adjacencies = graph.adjacencies if isinstance(graph, PreparedGraph) else (graph,)
        for held in adjacencies:
            if isinstance(held, BitAdjacency):
                held.check_written()  # once, and no part of every call
        writer = _Writer([first] if second is None else [first, second])
        result = forward(x, graph, writer.write)
        code = writer.code(result)
        if code is None:
            self._refused.add((type(x), first.dtype))
            return result
        watched = watches(x)
        if any(getattr(held, "derived_nbytes", 0) for held in adjacencies):
            watched.append(Watch(graph.tensors))
        number = torch.ops.bitgnn.bind_recording(*code)
        owner = weakref.ref(self)  # which recordings do not keep alive

        def forget(gone: Any) -> None:
            held = owner()
            if held is not None:
                held._recordings = tuple(r for r in held._recordings if r.graph is not gone)

        recording = Recording(number, x, graph, watched, forget)
        self._recordings = (recording, *self._recordings)[:MOST_RECORDINGS]
        return result

    def _can_record(self, x: Any) -> bool:
        parts_of = _PARTS.get(type(x))
        if parts_of is None:
            return False
        first = x if x.__class__ is Tensor else parts_of(x)[0]
        if (type(x), first.dtype) in self._refused or not _has_kernels(first.device.type):
            return False
        # What is derived from a graph cannot be kept while a stream is captured.
        return not (first.is_cuda and torch.cuda.is_current_stream_capturing())


def _are_unwritten(
    tensors: Sequence[Tensor | None],
    held: Sequence[Tensor | None],
    versions: Sequence[int | None],
) -> bool:
    """True if tensors are those held, and written to as often."""
    if len(tensors) != len(held):
        return False
    for tensor, before, version in zip(tensors, held, versions, strict=True):
        if tensor is not before:
            return False
        if version is not None and tensor._version != version:  # type: ignore[union-attr]
            return False
    return True


def _versions(tensors: Sequence[Tensor | None]) -> list[int | None]:
    """How often each tensor was written to; None for those of inference mode, which do not tell."""
    return [None if t is None or t.is_inference() else t._version for t in tensors]


def _form_of(x: Any) -> Any:
    """Properties of features that a recording depends on."""
    if x.__class__ is Tensor:
        return Tensor, x.shape, x.dtype, x.device, True, 0
    parts_of = _PARTS.get(x.__class__)
    if parts_of is None:
        return None
    first, second, size = parts_of(x)
    return x.__class__, first.shape, first.dtype, first.device, second is None, size


@functools.cache
def _has_kernels(device: str) -> bool:
    """True if the compiled operators for a type of device are there."""
    name = "bitgnn::run_recording"
    return (
        device in ("cpu", "cuda")
        and torch._C._dispatch_has_kernel(name)
        and torch._C._dispatch_has_kernel_for_dispatch_key(name, device.upper())
    )
