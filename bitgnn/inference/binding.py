"""Turns a program into bound calls on as few registers as its values need at once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from bitgnn.inference.fusions import LONGEST, fused
from bitgnn.inference.step import Apply, Runner, Step, StepKind, runner_of


@dataclass(frozen=True)
class Executable:
    """Bound calls over a list of slots.

    Attributes:
        runners: the calls in order, and between them what lets go of values.
        calls: the calls alone.
        num_slots: length of the list they work on.
        inputs: slot of each register that must be filled before, in the order given.
        output: slot of the result.
        groups: the steps that each call does.
        sources: buffers that calls derived others from: after a write to them they are stale.
    """

    runners: tuple[Runner, ...]
    calls: tuple[Runner, ...]
    num_slots: int
    inputs: Mapping[int, int]
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

    def bind(self, slots: Mapping[int, int]) -> Runner:
        """The call on the slots of its registers."""
        inputs, outputs = ([slots[r] for r in part] for part in (self.inputs, self.outputs))
        return runner_of(self.apply, inputs, outputs, self.graph)


def compile_steps(
    steps: Sequence[Step],
    inputs: Iterable[int],
    output: int,
    kinds: Mapping[str, StepKind],
    tensors: Mapping[str, Tensor],
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
    given = dict(slots)
    free: list[int] = []
    num_slots = len(slots)
    runners: list[Runner] = []
    calls: list[Runner] = []
    for place, unit in enumerate(units):
        ending = [slots[r] for r in dict.fromkeys(unit.inputs) if last_use[r] == place]
        available = [*free, *ending]
        for register in unit.outputs:
            if available:
                slots[register] = available.pop()
            else:
                slots[register] = num_slots
                num_slots += 1
        calls.append(unit.bind(slots))
        runners.append(calls[-1])
        unused = [slots[r] for r in unit.outputs if r not in last_use]
        stale = [slot for slot in ending if slot in available] + unused
        if stale:
            runners.append(_clear(stale))
        free = [*available, *unused]
    return Executable(
        tuple(runners),
        tuple(calls),
        num_slots,
        given,
        slots[output],
        tuple(unit.group for unit in units),
        tuple(source for unit in units for source in getattr(unit.apply, "sources", ())),
    )


def _units(
    steps: Sequence[Step],
    output: int,
    kinds: Mapping[str, StepKind],
    tensors: Mapping[str, Tensor],
) -> list[_Unit]:
    """The calls, as many steps in each as one operator can do."""
    readers = Counter(register for step in steps for register in step.inputs)
    readers[output] += 1
    units: list[_Unit] = []
    while steps:
        for length in range(min(LONGEST, len(steps)), 1, -1):
            group, own = steps[:length], [_own(step, tensors) for step in steps[:length]]
            apply = fused(group, own) if _is_private(group, readers) else None
            if apply is not None:
                break
        else:
            group = steps[:1]
            apply = kinds[group[0].kind].make(group[0], _own(group[0], tensors))
        units.append(_unit(group, apply))
        steps = steps[len(group) :]
    return units


def _is_private(group: Sequence[Step], readers: Mapping[int, int]) -> bool:
    """Whether every result inside a group of steps is read by the next step there alone."""
    return all(
        set(step.outputs) <= set(following.inputs)
        and all(readers[register] == 1 for register in step.outputs)
        for step, following in itertools.pairwise(group)
    )


def _own(step: Step, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensors[buffer] for name, buffer in step.tensors.items()}


def _unit(group: Sequence[Step], apply: Apply) -> _Unit:
    """A call that does a group of steps, which one of them at most does on a graph."""
    inner = {register for step in group[:-1] for register in step.outputs}
    inputs = tuple(r for step in group for r in step.inputs if r not in inner)
    graph = next((step.graph for step in group if step.graph is not None), None)
    return _Unit(tuple(group), inputs, group[-1].outputs, graph, apply)


def _clear(slots: Sequence[int]) -> Runner:
    """Let go of values that nothing reads any more."""
    held = tuple(slots)

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        for slot in held:
            v[slot] = None

    return run
