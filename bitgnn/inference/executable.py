"""Calls of a program bound to buffers: run one by one, written down for the C++ runner."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency
from bitgnn.inference.operators import argument_names, overload
from bitgnn.inference.program import CALL, Buffer, Call, Part, Ref
from bitgnn.inference.rewrites import Question, Rewriter, row_order_of, rewritten
from bitgnn.inference.steps.calls import FloatCall

Values = Any
"""What registers hold, by number."""


def _row_factor(adjacency: BitAdjacency) -> Tensor:
    row = adjacency.row_scale
    return torch.ones(adjacency.shape[0], device=adjacency.device) if row is None else row


def _row_order(adjacency: BitAdjacency) -> Tensor | None:
    # Compiled programs must not depend on the size of the graph that they are made with.
    can_order = adjacency.rowptr.is_cuda and not torch.compiler.is_compiling()
    return row_order_of(adjacency) if can_order else None


PARTS: Mapping[str, Callable[[Any], Any]] = {
    "row_order": _row_order,
    "row_factor": _row_factor,
    "whole": lambda graph: graph,
}
"""Parts of graphs that are no attributes; ``"sliced"`` are all arguments of that layout."""
SLICED = "sliced"
_MOST_QUESTIONS = 3


def _part(graph: Any, part: Any) -> Any:
    return getattr(graph, part) if type(part) is str else part(graph)


class Instruction(NamedTuple):
    """A call with everything looked up.

    Attributes:
        call: the call.
        function: what it calls.
        template: its arguments, with gaps.
        reads: place and register of those that registers hold.
        parts: place, graph and attribute, or a function, of those that are parts of graphs.
        sliced: place and graph of the arguments of a sliced layout.
        gathers: place and number of arguments that are one list.
        outputs: the register of the result, or those of several.
        ends: registers that nothing reads any more.
    """

    call: Call
    function: Callable[..., Any]
    template: list[Any]
    reads: tuple[tuple[int, int], ...]
    parts: tuple[tuple[int, int, Any], ...]
    sliced: tuple[int, int] | None
    gathers: tuple[int, int] | None
    outputs: int | tuple[int, ...]
    ends: tuple[int, ...]

    def arguments(self, values: Values, graphs: Sequence[Any]) -> list[Any]:
        """All arguments."""
        given = self.template.copy()
        for place, register in self.reads:
            given[place] = values[register]
        for place, graph, part in self.parts:
            given[place] = _part(graphs[graph], part)
        if self.sliced is not None:
            place, graph = self.sliced
            given[place : place + 1] = graphs[graph].sliced().arguments
        if self.gathers is not None:
            place, count = self.gathers
            given[place : place + count] = [given[place : place + count]]
        return given

    def run(self, values: Values, graphs: Sequence[Any]) -> Any:
        """Call it and store its results, which are returned."""
        found = self.function(*self.arguments(values, graphs))
        if type(self.outputs) is int:
            values[self.outputs] = found
        else:
            for register, part in zip(self.outputs, found, strict=True):  # type: ignore[arg-type]
                values[register] = part
        return found


@dataclass(frozen=True)
class Executable:
    """Instructions over a list of registers, of which ``inputs`` must be filled before.

    Attributes:
        code: in order.
        units: the calls of the program that each of the instructions does, or several together.
        inputs: registers of the features.
        output: register of the result.
        size: number of registers.
        sources: buffers that arguments were derived from: after a write to them they are stale.
        asked: what was asked about the graphs and the features, and answered.
    """

    code: tuple[Instruction, ...]
    units: tuple[tuple[tuple[Call, ...], tuple[Instruction, ...]], ...]
    inputs: tuple[int, ...]
    output: int
    size: int
    sources: tuple[Tensor, ...]
    asked: tuple[tuple[Question, bool], ...]

    @property
    def groups(self) -> tuple[tuple[Call, ...], ...]:
        """The calls of the program that are done together."""
        return tuple(group for group, _ in self.units)

    def values(self, given: Sequence[Any]) -> list[Any]:
        """Registers with the features filled in."""
        values: list[Any] = [None] * self.size
        for register, value in zip(self.inputs, given, strict=True):
            values[register] = value
        return values

    def failing_layer(self, given: Sequence[Any]) -> str:
        """The layer whose call raises an error on these features."""
        values = self.values(given)
        for group, instructions in self.units:
            try:
                for instruction in instructions:
                    instruction.run(values, ())
            except Exception:  # noqa: BLE001  (as it was raised before)
                return group[0].layer
        return "?"

    def run(self, values: Values, graphs: Sequence[Any], writer: Writer | None = None) -> Any:
        """The result; ``writer`` writes the calls down."""
        for instruction in self.code:
            if writer is None:
                # As in Instruction.run: a call of Python's for each operator costs a tenth.
                _, function, template, reads, parts, sliced, gathers, outputs, ends = instruction
                if sliced is None and gathers is None:
                    given = template.copy()
                    for place, register in reads:
                        given[place] = values[register]
                    for place, graph, part in parts:
                        held = graphs[graph]
                        given[place] = getattr(held, part) if type(part) is str else part(held)
                else:
                    given = instruction.arguments(values, graphs)
                found = function(*given)
                if type(outputs) is int:
                    values[outputs] = found
                else:
                    for register, one in zip(outputs, found, strict=True):  # type: ignore[arg-type]
                        values[register] = one
                for register in ends:
                    values[register] = None
            else:
                given = instruction.arguments(values, graphs)
                writer.write(instruction, given, instruction.run(values, graphs))
        return values[self.output]


class Compiled:
    """The calls of a program bound to buffers, for graphs and features of every form.

    Args:
        calls: part of a program.
        inputs: registers that are filled before.
        output: register of the result.
        size: number of registers.
        tensors: buffers by name.
        own: the user's own code.
        fuses: whether several calls may become one.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        inputs: Sequence[int],
        output: int,
        size: int,
        tensors: Mapping[str, Tensor],
        own: Sequence[FloatCall] = (),
        fuses: bool = True,
    ) -> None:
        self.calls, self.inputs, self.output = tuple(calls), tuple(inputs), output
        self.size, self.tensors, self.own, self.fuses = size, tensors, own, fuses
        first = self._make({})
        self.made = [first]
        # Compiled programs ask about sizes of graphs and features, and cannot make another.
        asked = [q for q, _ in first.asked if q.kind != "slices"][:_MOST_QUESTIONS]
        for answers in itertools.islice(itertools.product((False, True), repeat=len(asked)), 1, None):
            self.made.append(self._make(dict(zip(asked, answers, strict=True))))

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """Buffers that bound calls derived others from."""
        return tuple(source for made in self.made for source in made.sources)

    def on(self, x: Any, graphs: Sequence[Any]) -> Executable:
        """The calls for these features and graphs."""
        for made in self.made:
            for question, answer in made.asked:
                if question.answer(x, graphs) != answer:
                    break
            else:
                return made
        asked = {q: q.answer(x, graphs) for made in self.made for q, _ in made.asked}
        self.made.append(self._make(asked, lambda question: question.answer(x, graphs)))
        return self.made[-1]

    def _make(
        self, known: Mapping[Question, bool], ask: Callable[[Question], bool] = lambda q: False
    ) -> Executable:
        asked: dict[Question, bool] = {}

        def answer(question: Question) -> bool:
            return asked.setdefault(question, known.get(question, None) or ask(question))

        rewriter = Rewriter(self.tensors, self.size, answer)
        units = rewritten(self.calls, self.output, rewriter, self.fuses)
        last: dict[int, int] = {self.output: -1}
        flat = [call for _, calls in units for call in calls]
        for place in reversed(range(len(flat))):
            for register in (*flat[place].inputs, *flat[place].outputs):
                last.setdefault(register, place)
        ends: dict[int, list[int]] = {}
        for register, place in last.items():
            ends.setdefault(place, []).append(register)
        made = [self._bound(call, tuple(ends.get(n, ()))) for n, call in enumerate(flat)]
        parts = iter(made)
        held = [(group, tuple(itertools.islice(parts, len(calls)))) for group, calls in units]
        return Executable(
            tuple(made), tuple(held), self.inputs, self.output, rewriter.size,
            tuple(rewriter.sources), tuple(asked.items()),
        )  # fmt: skip

    def _bound(self, call: Call, ends: tuple[int, ...]) -> Instruction:
        arguments = list(call.arguments)
        gathers = None
        for place, value in enumerate(arguments):
            if isinstance(value, list) and any(isinstance(part, Ref) for part in value):
                gathers = place, len(value)
                arguments[place : place + 1] = value
                break
        if call.operator == CALL:
            function: Callable[..., Any] = _own_call(self.own[arguments.pop(0)], call)
        else:
            function = overload(call.operator)
            names = argument_names(call.operator)
            if names[-1] == "trusted":
                # Patterns were checked when they were made, and after each write.
                defaults = function._schema.arguments[len(arguments) :]  # type: ignore[attr-defined]
                sliced = sum(isinstance(a, Part) and a.name == SLICED for a in arguments)
                skipped = defaults if not sliced else defaults[_SLICED_ARGUMENTS - 1 :]
                arguments += [d.default_value for d in skipped[:-1]] + [True]
        reads, parts, sliced_at = [], [], None
        for place, value in enumerate(arguments):
            if isinstance(value, Ref):
                reads.append((place, value.register))
            elif isinstance(value, Part) and value.name == SLICED:
                sliced_at = place, value.graph
            elif isinstance(value, Part):
                parts.append((place, value.graph, PARTS.get(value.name, value.name)))
            elif isinstance(value, Buffer):
                arguments[place] = self.tensors[value.name]
        outputs = call.outputs[0] if len(call.outputs) == 1 else call.outputs
        return Instruction(
            call, function, arguments, tuple(reads), tuple(parts), sliced_at, gathers, outputs, ends
        )


_SLICED_ARGUMENTS = 9
"""Arguments that a sliced layout stands for."""


def _own_call(own: FloatCall, call: Call) -> Callable[..., Any]:
    """The user's own code; the graph, if it reads one, is the last argument."""
    if call.graph is None:
        return lambda *given: own(given, None)
    return lambda *given: own(given[:-1], given[-1])


_NONE, _INTEGER, _REAL, _INTEGERS, _CONSTANT, _REGISTER = range(6)
"""Kinds of arguments, numbered as in csrc/core/recording.h."""
_VIEWS = ("aten::view", "aten::unsqueeze", "aten::slice.Tensor")
"""What the runner does beside our operators."""


class Writer:
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
        """What ``bind_recording`` takes; None where it cannot, or no call gave the result."""
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
    """Whether a result is the operand in another shape."""
    return (
        isinstance(x, Tensor)
        and isinstance(found, Tensor)
        and x.dtype == found.dtype
        and x.data_ptr() == found.data_ptr()
        and x.numel() == found.numel()
        and x.is_contiguous()
        and found.is_contiguous()
    )
