"""Plans: the operator calls of a forward, recorded once and then run by one operator.

A frozen model's forward on given inputs is a list of operator calls whose arguments are its
buffers, the graph and the features. Once such inputs come a second time, their calls are recorded,
and ``bitgnn::run_plan`` does all of them in C++, where every operator checks its arguments as
before. What Python decides on the way, such as the layout of a graph, is decided once.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, is_in_torch_dispatch_mode

from bitgnn.bits import BitAdjacency, BitImages, BitTensor
from bitgnn.bits.tensor_version import Watch
from bitgnn.inference.graph import PreparedGraph

__all__ = ["Plans"]

MOST_PLANS = 8
"""Plans of a model; a new one takes the place of the oldest."""

_NONE, _INTEGER, _REAL, _INTEGERS, _CONSTANT, _REGISTER = range(6)
"""Kinds of arguments, numbered as in csrc/core/plan.h."""

Parts = tuple[Tensor, Tensor | None, int]
_PARTS: dict[type, Callable[[Any], Parts]] = {
    Tensor: lambda x: (x, None, 0),
    BitTensor: lambda x: (x.words, x.scale, x.size),
    BitImages: lambda x: (x.words, x.scale, x.channels),
    BitAdjacency: lambda x: (x.rowptr, x.indices, x.num_cols),
}
"""The tensors that features consist of, and the number of features that is none of their sizes."""


class _Recorder(TorchDispatchMode):
    """Keeps the operator calls made inside, with what they took and gave."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, list[Any], tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        found = func(*args, **given)
        rest = func._schema.arguments[len(args) :]
        values = [*args, *(given.get(a.name, a.default_value) for a in rest)]
        self.calls.append((func, values, found if isinstance(found, tuple) else (found,)))
        return found


class _Plan:
    """A bound forward and the inputs it serves.

    Args:
        number: what ``bind_plan`` gave.
        x: features like those it takes.
        graph: the graph it reads.
        watches: what else must not have been written to.
        forget: called once the graph is gone.
    """

    def __init__(
        self, number: int, x: Any, graph: Any, watches: Sequence[Watch], forget: Callable[..., None]
    ) -> None:
        self._number = number
        self._form = type(x)
        self._parts_of = _PARTS[self._form]
        first, second, self._size = self._parts_of(x)
        self._shape, self._dtype, self._device = first.shape, first.dtype, first.device
        self._is_alone = second is None
        self._graph = _nothing if graph is None else weakref.ref(graph, lambda _: forget(self))
        self._tensors = () if graph is None else graph.tensors
        self._watches = watches
        like = first.new_empty(0).detach()
        weakref.finalize(self, torch.ops.bitgnn.drop_plan, like, number).atexit = False

    def fits(self, x: Any, graph: Any) -> bool:
        """Whether it serves these inputs as they are now."""
        if x.__class__ is not self._form or self._graph() is not graph:
            return False
        first, second, size = self._parts_of(x)
        return (
            first.shape == self._shape
            and first.dtype is self._dtype
            and (second is None) is self._is_alone
            and size == self._size
            and first.device == self._device
            and (graph is None or _are_same(graph.tensors, self._tensors))
            and all(watch.unchanged() for watch in self._watches)
        )

    def run(self, x: Any) -> Any:
        """The result for features that it fits."""
        first, second, _ = self._parts_of(x)
        return torch.ops.bitgnn.run_plan.default(first, second, self._number)


def _nothing() -> None:
    """In place of a reference to a graph where there is none."""


class Plans:
    """The plans of one model. A copy begins empty; threads may share it.

    Args:
        watches: gives what the model's calls on features in the form of some were made of: after
            a write to it, they must be made anew.
    """

    def __init__(self, watches: Callable[[Any], Sequence[Watch]]) -> None:
        self._watches = watches
        self._plans: tuple[_Plan, ...] = ()
        self._last: Any = None

    def __len__(self) -> int:
        return len(self._plans)

    def run(self, x: Any, graph: Any, forward: Callable[[Any, Any], Any]) -> Any:
        """What ``forward(x, graph)`` gives, by a plan where there is one.

        Args:
            x: features.
            graph: the prepared graph or None.
            forward: the calls one by one, with their checks.
        """
        if is_in_torch_dispatch_mode() or torch.jit.is_tracing():
            return forward(x, graph)
        for plan in self._plans:
            if plan.fits(x, graph):
                try:
                    return plan.run(x)
                except RuntimeError:
                    return forward(x, graph)  # which says more of an error
        key = _key(x, graph)
        if key is None or key != self._last:
            self._last = key
            return forward(x, graph)
        return self._record(x, graph, forward)

    def _record(self, x: Any, graph: Any, forward: Callable[[Any, Any], Any]) -> Any:
        with _Recorder() as recorder:
            result = forward(x, graph)
        parts = [part for part in _PARTS[type(x)](x)[:2] if part is not None]
        code = _code_of(recorder, parts, result)
        if code is None:
            return result
        watches = list(self._watches(x))
        if any(getattr(held, "derived_nbytes", 0) for held in _adjacencies(graph)):
            watches.append(Watch(graph.tensors))
        number = torch.ops.bitgnn.bind_plan(*code)
        plan = _Plan(number, x, graph, watches, self._forget)
        self._plans = (plan, *self._plans)[:MOST_PLANS]
        return result

    def _forget(self, plan: _Plan) -> None:
        self._plans = tuple(held for held in self._plans if held is not plan)


def _adjacencies(graph: Any) -> Sequence[Any]:
    return graph.adjacencies if isinstance(graph, PreparedGraph) else (graph,)


def _are_same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    return len(found) == len(expected) and all(map(is_, found, expected))


def _key(x: Any, graph: Any) -> Any:
    """What tells inputs from others before there is a plan; None where there can be none."""
    parts_of = _PARTS.get(type(x))
    if parts_of is None:
        return None
    first, second, size = parts_of(x)
    device = first.device.type
    if not torch._C._dispatch_has_kernel_for_dispatch_key("bitgnn::run_plan", device.upper()):
        return None
    if device == "cuda" and torch.cuda.is_current_stream_capturing():
        return None  # what is derived from a graph cannot be kept then
    return type(x), first.shape, first.dtype, first.device, second is None, size, id(graph)


def _code_of(
    recorder: _Recorder, inputs: Sequence[Tensor], result: Any
) -> tuple[list[Tensor], str, list[int]] | None:
    """Tensors, names of the operators, and numbers that ``bind_plan`` takes.

    None where a call is none of our operators, or takes or gives what plans do not hold.
    """
    registers = {id(tensor): number for number, tensor in enumerate(inputs)}
    constants: dict[int, tuple[int, Tensor]] = {}
    numbers: list[int] = []
    for function, values, outputs in recorder.calls:
        coded = [_coded(value, registers, constants) for value in values]
        if function.namespace != "bitgnn" or None in coded:
            return None
        numbers += [len(coded), *(number for pair in coded for number in pair or ())]
        for output in outputs:
            registers[id(output)] = len(registers)
        numbers += [len(outputs), *(registers[id(output)] for output in outputs)]
    place = registers.get(id(result), 0)
    if place < len(inputs):
        return None
    names = " ".join(function._opname for function, *_ in recorder.calls)
    head = [len(inputs), len(registers), place]
    return [tensor for _, tensor in constants.values()], names, head + numbers


def _coded(
    value: Any, registers: dict[int, int], constants: dict[int, tuple[int, Tensor]]
) -> list[int] | None:
    """One argument as numbers, its kind in front."""
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
    if id(value) in registers:
        return [_REGISTER, registers[id(value)]]
    return [_CONSTANT, constants.setdefault(id(value), (len(constants), value))[0]]
