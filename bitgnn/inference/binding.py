"""Turns a program into bound calls on as few registers as its values need at once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from bitgnn.inference.fusions import LONGEST, fused
from bitgnn.inference.step import Apply, Step, StepKind

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
    tensors: Mapping[str, Tensor],
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
