"""The form of a frozen model, steps between registers: its rules, and the calls it is bound to."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from bitgnn.inference.fusions import LONGEST, fused
from bitgnn.inference.step import Apply, Register, Step, StepKind, StepReader, Tensors
from bitgnn.inference.steps.weighted import with_weights

RESULTS = ("floats", "classes")
"""What a model may hand out."""
PACKING = (
    "pack", "pack_scaled", "pack_standardized", "pack_int8", "pack_images", "pack_patches",
)  # fmt: skip
"""Steps behind which the features may be known by their bits or codes alone."""


@dataclass(frozen=True)
class Program:
    """Steps from the features in register 0 to the scores.

    Attributes:
        in_channels: width of the features; 0 where nothing tells it.
        steps: in the order they run.
        output: register of the result.
        entry: number of steps in front of the binary part: they end in the one packing step behind
            which only bits or codes of the features are used. None where floats are needed.
    """

    in_channels: int
    steps: tuple[Step, ...]
    output: int
    entry: int | None = None

    def check(
        self, kinds: Mapping[str, StepKind], tensors: Tensors, graphs: Sequence[str]
    ) -> dict[int, Register]:
        """What each register holds, once every step is known to have what it needs.

        ``graphs`` says what steps find in each adjacency. A ValueError names the step at fault.
        """
        registers = {0: Register("floats", self.in_channels or None)}
        for number, step in enumerate(self.steps):
            try:
                found = _check_step(step, registers, kinds, tensors, graphs)
            except (KeyError, TypeError) as error:
                raise ValueError(f"step {number} ({step.kind}): {error!r}") from error
            except ValueError as error:
                raise ValueError(f"step {number} ({step.kind}): {error}") from error
            registers.update(zip(step.outputs, found, strict=True))
        if registers.get(self.output, Register("bits", None)).form not in RESULTS:
            raise ValueError(f"register {self.output} of the result must hold floats or classes")
        left = sorted(tensors.keys() - {name for s in self.steps for name in s.tensors.values()})
        if left:
            raise ValueError(f"unexpected tensors {left}")
        self._check_entry()
        return registers

    def _check_entry(self) -> None:
        """Behind the entry nothing in front of it is read but what the last step there wrote."""
        if self.entry is None:
            return
        if not 1 <= self.entry <= len(self.steps):
            raise ValueError(f"entry must lie in [1, {len(self.steps)}], got {self.entry}")
        packing = self.steps[self.entry - 1]
        if packing.kind not in PACKING:
            raise ValueError(f"the entry must end in a packing step, got {packing.kind}")
        behind = self.steps[self.entry :]
        hidden = {0, *(r for step in self.steps[: self.entry - 1] for r in step.outputs)}
        read = {register for step in behind for register in step.inputs} | {self.output}
        if hidden & read:
            raise ValueError(f"registers {sorted(hidden & read)} are read behind the entry")

    def description(self) -> dict[str, Any]:
        """Plain values that :meth:`from_description` reads."""
        return {**vars(self), "steps": [step.description() for step in self.steps]}

    @classmethod
    def from_description(cls, description: Any) -> Program:
        """Read a program, whose entries must be there and of their types, else ValueError.

        :meth:`check` then says whether it can run.
        """
        names = ("in_channels", "steps", "output", "entry")
        if not isinstance(description, dict) or set(names) - description.keys():
            raise ValueError(f"a program must have the entries {list(names)}")
        in_channels, steps, output, entry = (description[name] for name in names)
        numbers = (in_channels, output, 0 if entry is None else entry)
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("in_channels, output and entry of a program must be numbers")
        if not isinstance(steps, list):
            raise ValueError("steps of a program must be a list")
        return cls(in_channels, tuple(Step.from_description(s) for s in steps), output, entry)


def _check_step(
    step: Step,
    registers: Mapping[int, Register],
    kinds: Mapping[str, StepKind],
    tensors: Tensors,
    graphs: Sequence[str],
) -> Sequence[Register]:
    """What a step writes."""
    kind = kinds.get(step.kind)
    if kind is None:
        raise ValueError(f"unknown kind, known are {sorted(kinds)}")
    for register in step.inputs:
        if register not in registers:
            raise ValueError(f"register {register} is read before it is written")
    if kind.uses_graph is not None and (
        step.graph is None
        or not 0 <= step.graph < len(graphs)
        or graphs[step.graph] != kind.uses_graph
    ):
        raise ValueError(f"adjacency {step.graph} does not fit, graphs are {graphs}")
    missing = sorted(set(step.tensors.values()) - tensors.keys())
    if missing:
        raise ValueError(f"tensors {missing} are missing")
    own = {name: tensors[buffer] for name, buffer in step.tensors.items()}
    reader = StepReader(step, own, [registers[i] for i in step.inputs])
    found, _ = kind.read(reader)
    reader.vectors(None)
    if len(found) != len(step.outputs) or registers.keys() & set(step.outputs):
        raise ValueError(f"registers {list(step.outputs)} cannot be written")
    return found


Runner = Callable[[list[Any], Sequence[Any]], None]
"""A bound call: reads and writes the registers, given the adjacencies."""


def runner_of(
    apply: Apply, inputs: Sequence[int], outputs: Sequence[int], graph: int | None
) -> Runner:
    """The call of a function on registers and, where there is one, an adjacency."""

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        found = apply(*[v[i] for i in inputs])
        if len(outputs) == 1:
            v[outputs[0]] = found
        else:
            v[outputs[0]], v[outputs[1]] = found

    def run_over_graph(v: list[Any], graphs: Sequence[Any]) -> None:
        v[outputs[0]] = apply(*[v[i] for i in inputs], graphs[graph])  # type: ignore[index]

    return run if graph is None else run_over_graph


@dataclass(frozen=True)
class Executable:
    """Bound calls over a list of slots, of which the first ``num_inputs`` must be filled before.

    Attributes:
        runners: the calls in order, and between them what lets go of values.
        groups: the steps that each of the calls does.
        output: slot of the result.
        sources: buffers that calls derived others from: after a write to them they are stale.
    """

    runners: tuple[Runner, ...]
    calls: tuple[Runner, ...]
    num_slots: int
    num_inputs: int
    output: int
    groups: tuple[tuple[Step, ...], ...]
    sources: tuple[Tensor, ...]


class _Unit(NamedTuple):
    """One call before its slots are known: the steps it does, and the registers it works on."""

    group: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    graph: int | None
    apply: Apply


def compile_steps(
    steps: Sequence[Step],
    inputs: Iterable[int],
    output: int,
    kinds: Mapping[str, StepKind],
    tensors: Tensors,
) -> Executable:
    """Bind steps so that nothing is looked up while they run.

    Packing, product and aggregation become one call where each feeds the next alone. A value gives
    its slot back with its last reader, so that it is freed as early as in handwritten code.
    """
    units = _units(steps, output, kinds, tensors)
    last_use = {output: len(units)}
    for place in reversed(range(len(units))):
        for register in units[place].inputs:
            last_use.setdefault(register, place)
    slots = {register: slot for slot, register in enumerate(inputs)}
    num_slots = num_inputs = len(slots)
    free: list[int] = []
    runners: list[Runner] = []
    calls: list[Runner] = []
    for place, unit in enumerate(units):
        ending = [slots[r] for r in dict.fromkeys(unit.inputs) if last_use[r] == place]
        read = [slots[r] for r in unit.inputs]
        free += ending
        for register in unit.outputs:
            if free:
                slots[register] = free.pop()
            else:
                slots[register] = num_slots
                num_slots += 1
        written = [slots[r] for r in unit.outputs]
        calls.append(runner_of(unit.apply, read, written, unit.graph))
        runners.append(calls[-1])
        unused = [slots[r] for r in unit.outputs if r not in last_use]
        stale = [slot for slot in ending if slot in free] + unused
        if stale:
            runners.append(_clear(stale))
        free += unused
    return Executable(
        tuple(runners),
        tuple(calls),
        num_slots,
        num_inputs,
        slots[output],
        tuple(unit.group for unit in units),
        tuple(source for unit in units for source in getattr(unit.apply, "sources", ())),
    )


def _units(
    steps: Sequence[Step],
    output: int,
    kinds: Mapping[str, StepKind],
    tensors: Tensors,
) -> list[_Unit]:
    """The calls, as many steps in each as one operator can do."""
    readers = Counter(register for step in steps for register in step.inputs)
    readers[output] += 1
    owns = [{n: tensors[buffer] for n, buffer in step.tensors.items()} for step in steps]
    units: list[_Unit] = []
    start = 0
    while start < len(steps):
        for length in range(min(LONGEST, len(steps) - start), 1, -1):
            group, own = steps[start : start + length], owns[start : start + length]
            apply = fused(group, own) if _is_private(group, readers) else None
            if apply is not None:
                break
        else:
            group = steps[start : start + 1]
            apply = kinds[group[0].kind].make(group[0], owns[start])
        apply = with_weights(apply, group, owns[start : start + len(group)], kinds)
        inner = {register for step in group[:-1] for register in step.outputs}
        inputs = tuple(r for step in group for r in step.inputs if r not in inner)
        graph = next((step.graph for step in group if step.graph is not None), None)
        units.append(_Unit(tuple(group), inputs, group[-1].outputs, graph, apply))
        start += len(group)
    return units


def _is_private(group: Sequence[Step], readers: Mapping[int, int]) -> bool:
    """Whether every result inside a group of steps is read by the next step there alone."""
    return all(
        set(step.outputs) <= set(following.inputs)
        and all(readers[register] == 1 for register in step.outputs)
        for step, following in itertools.pairwise(group)
    )


def _clear(slots: Sequence[int]) -> Runner:
    """Let go of values that nothing reads any more."""

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        for slot in slots:
            v[slot] = None

    return run
