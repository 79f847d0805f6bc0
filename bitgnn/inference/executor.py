"""Turns a program into bound calls on as few registers as its values need at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from bitgnn.inference.program import Runner, Step, StepKind
from bitgnn.inference.steps.products import (
    PRODUCTS,
    bind_float_product,
    bind_pattern_product,
    takes_pattern,
)

__all__ = ["Executable", "compile_steps"]


@dataclass(frozen=True)
class Executable:
    """Bound calls over a list of slots.

    Attributes:
        runners: the calls in order.
        num_slots: length of the list they work on.
        inputs: slot of each register that must be filled before, in the order given.
        output: slot of the result.
        alive: registers that hold values during each call, without the input registers.
    """

    runners: tuple[Runner, ...]
    num_slots: int
    inputs: Mapping[int, int]
    output: int
    alive: tuple[frozenset[int], ...]


@dataclass(frozen=True)
class _Unit:
    """One call before its slots are known."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    bind: Callable[[Mapping[int, int]], Runner]


def compile_steps(
    steps: Sequence[Step],
    inputs: Iterable[int],
    output: int,
    kinds: Mapping[str, StepKind],
    tensors: Mapping[str, Tensor],
    *,
    as_pattern: bool = False,
) -> Executable:
    """Bind steps so that nothing is looked up while they run.

    A packing step whose bits feed the next step alone becomes one call with it. A value gives its
    slot back with its last reader, so that it is freed as early as in handwritten code.

    Args:
        steps: the steps.
        inputs: registers that are filled before.
        output: register of the result.
        kinds: kinds of steps.
        tensors: the buffers by name.
        as_pattern: the first step takes its bits as the pattern of those that are set.
    """
    units = _units(steps, kinds, tensors, as_pattern)
    last_use = {output: len(units)}
    for place in reversed(range(len(units))):
        for register in units[place].inputs:
            last_use.setdefault(register, place)
    slots = {register: slot for slot, register in enumerate(inputs)}
    given = dict(slots)
    free: list[int] = []
    num_slots = len(slots)
    runners: list[Runner] = []
    held: set[int] = set()
    alive: list[frozenset[int]] = []
    for place, unit in enumerate(units):
        ending = [slots[r] for r in dict.fromkeys(unit.inputs) if last_use[r] == place]
        available = [*free, *ending]
        for register in unit.outputs:
            if available:
                slots[register] = available.pop()
            else:
                slots[register] = num_slots
                num_slots += 1
        runners.append(unit.bind(slots))
        held.update(unit.outputs)
        alive.append(frozenset(held))
        held -= {register for register in held if last_use.get(register, place) <= place}
        unused = [slots[r] for r in unit.outputs if r not in last_use]
        stale = [slot for slot in ending if slot in available] + unused
        if stale:
            runners.append(_clear(stale))
        free = [*available, *unused]
    return Executable(tuple(runners), num_slots, given, slots[output], tuple(alive))


def _units(
    steps: Sequence[Step],
    kinds: Mapping[str, StepKind],
    tensors: Mapping[str, Tensor],
    as_pattern: bool,
) -> list[_Unit]:
    readers: dict[int, int] = {}
    for step in steps:
        for register in step.inputs:
            readers[register] = readers.get(register, 0) + 1
    units: list[_Unit] = []
    position = 0
    while position < len(steps):
        step = steps[position]
        following = steps[position + 1] if position + 1 < len(steps) else None
        if position == 0 and as_pattern:
            assert takes_pattern(step)
            units.append(_pattern_unit(step, tensors))
        elif (
            following is not None
            and step.kind in ("pack", "pack_scaled")
            and following.kind in PRODUCTS
            and set(step.outputs) <= set(following.inputs)
            and all(readers[register] == 1 for register in step.outputs)
            and (fused := _fused_unit(step, following, tensors)) is not None
        ):
            units.append(fused)
            position += 1
        else:
            units.append(_step_unit(step, kinds[step.kind], tensors))
        position += 1
    return units


def _own(step: Step, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensors[buffer] for name, buffer in step.tensors.items()}


def _placed(step: Step, slots: Mapping[int, int]) -> Step:
    """The step with slots in place of registers; -1 where a fused call keeps none."""
    return replace(
        step,
        inputs=tuple(slots.get(register, -1) for register in step.inputs),
        outputs=tuple(slots.get(register, -1) for register in step.outputs),
    )


def _step_unit(step: Step, kind: StepKind, tensors: Mapping[str, Tensor]) -> _Unit:
    own = _own(step, tensors)
    return _Unit(step.inputs, step.outputs, lambda slots: kind.bind(_placed(step, slots), own))


def _pattern_unit(step: Step, tensors: Mapping[str, Tensor]) -> _Unit:
    own = _own(step, tensors)
    return _Unit(
        step.inputs, step.outputs, lambda slots: bind_pattern_product(_placed(step, slots), own)
    )


def _fused_unit(packing: Step, step: Step, tensors: Mapping[str, Tensor]) -> _Unit | None:
    pack_own, own = _own(packing, tensors), _own(step, tensors)
    if bind_float_product(packing, step, pack_own, own) is None:
        return None

    def bind(slots: Mapping[int, int]) -> Runner:
        runner = bind_float_product(_placed(packing, slots), _placed(step, slots), pack_own, own)
        assert runner is not None
        return runner

    rest = tuple(register for register in step.inputs if register not in packing.outputs)
    return _Unit((*packing.inputs, *rest), step.outputs, bind)


def _clear(slots: Sequence[int]) -> Runner:
    """Let go of values that nothing reads any more."""
    held = tuple(slots)

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        for slot in held:
            v[slot] = None

    return run
