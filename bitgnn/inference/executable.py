"""Calls of a program bound to buffers: run one by one, written down for the C++ runner."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from bitgnn.inference.layouts import ANSWERS, PARTS, SLICED, SLICED_ARGUMENTS, Question, Rewriter
from bitgnn.inference.operators import argument_names, overload
from bitgnn.inference.own_code.calls import FloatCall
from bitgnn.inference.program import CALL, Buffer, Call, Part, Ref
from bitgnn.inference.rewrites import rewritten

MOST_VARIANTS = 8
"""Executables that are made at once, for answers that compiled programs may find."""


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


Write = Callable[[Instruction, Sequence[Any], Any], None]
"""Writes an instruction down, with its arguments and what it gave."""


def run_code(
    code: Sequence[Instruction],
    values: list[Any],
    graphs: Sequence[Any],
    write: Write | None = None,
    frees: bool = True,
) -> None:
    """Run instructions on registers; a call of Python's more for each would cost a tenth."""
    for instruction in code:
        _, function, template, reads, parts, sliced, gathers, outputs, ends = instruction
        given = template.copy()
        for place, register in reads:
            given[place] = values[register]
        for place, graph, part in parts:
            held = graphs[graph]
            given[place] = getattr(held, part) if type(part) is str else part(held)
        if sliced is not None:
            place, graph = sliced
            given[place : place + 1] = graphs[graph].sliced().arguments
        if gathers is not None:
            place, count = gathers
            given[place : place + count] = [given[place : place + count]]
        found = function(*given)
        if type(outputs) is int:
            values[outputs] = found
        else:
            for register, one in zip(outputs, found, strict=True):  # type: ignore[arg-type]
                values[register] = one
        if write is not None:
            write(instruction, given, found)
        if frees:
            for register in ends:
                values[register] = None


@dataclass(frozen=True)
class Executable:
    """Instructions over a list of registers, of which ``inputs`` must be filled before.

    Attributes:
        units: the calls of the program that each of the instructions does, or several together.
        code: the instructions in order.
        inputs: registers of the features.
        output: register of the result.
        size: number of registers.
        sources: buffers that arguments were derived from: after a write to them they are stale.
        asked: what was asked about the graphs and the features, and answered.
    """

    units: tuple[tuple[tuple[Call, ...], tuple[Instruction, ...]], ...]
    code: tuple[Instruction, ...]
    inputs: tuple[int, ...]
    output: int
    size: int
    sources: tuple[Tensor, ...]
    asked: tuple[tuple[Question, bool], ...]

    def values(self, given: Sequence[Any]) -> list[Any]:
        """Registers with the features filled in."""
        values: list[Any] = [None] * self.size
        for register, value in zip(self.inputs, given, strict=True):
            values[register] = value
        return values

    def failing_layer(self, given: Sequence[Any]) -> str:
        """The layer whose call raises an error on these features."""
        values = self.values(given)
        for group, code in self.units:
            try:
                run_code(code, values, (), frees=False)
            except Exception:
                return group[0].layer
        return "?"

    def run(self, values: list[Any], graphs: Sequence[Any], write: Write | None = None) -> Any:
        """The result; ``write`` writes the calls down."""
        run_code(self.code, values, graphs, write)
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
        kept: further registers that are read afterwards.
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
        kept: Sequence[int] = (),
    ) -> None:
        self.calls, self.inputs, self.output = tuple(calls), tuple(inputs), output
        self.kept = {output, *kept}
        self.size, self.tensors, self.own, self.fuses = size, tensors, own, fuses
        # Compiled programs ask about graphs and features, too, and cannot make another.
        self.made: list[Executable] = []
        answers: list[dict[Question, bool]] = [{}]
        while answers and len(self.made) < MOST_VARIANTS:
            known = answers.pop(0)
            self.made.append(self._make(known))
            asked = [q for q, _ in self.made[-1].asked if q.kind != "slices" and q not in known]
            for place, question in enumerate(asked):
                others = dict.fromkeys(asked[:place], False)
                answers.append({**known, **others, question: True})

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """Buffers that bound calls derived others from."""
        return tuple({id(s): s for made in self.made for s in made.sources}.values())

    def on(self, x: Any, graphs: Sequence[Any]) -> Executable:
        """The calls for these features and graphs."""
        for made in self.made:
            for (kind, graph, limit), answer in made.asked:
                if kind == "few_rows":
                    found = x.shape[0] <= limit
                else:
                    found = bool(graphs) and ANSWERS[kind](graphs[graph], limit)
                if found != answer:
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
            return asked.setdefault(question, known.get(question, False) or ask(question))

        rewriter = Rewriter(self.tensors, self.size, answer)
        units = rewritten(self.calls, self.kept, rewriter, self.fuses)
        last: dict[int, int] = dict.fromkeys(self.kept, -1)
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
            tuple(held), tuple(made), self.inputs, self.output, rewriter.size,
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
                skipped = defaults if not sliced else defaults[SLICED_ARGUMENTS - 1 :]
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


def _own_call(own: FloatCall, call: Call) -> Callable[..., Any]:
    """The user's own code; the graph, if it reads one, is the last argument."""
    if call.graph is None:
        return lambda *given: own(given, None)
    return lambda *given: own(given[:-1], given[-1])
