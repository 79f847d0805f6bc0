"""Turns a program into bound calls on as few registers as its values need at once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor

from bitgnn.inference.program import Runner, Step, StepKind
from bitgnn.inference.steps.derived_buffers import sources_of
from bitgnn.inference.steps.joint import bind_joint_product
from bitgnn.inference.steps.linear_chain import (
    bind_linear_chain,
    chain_length,
    linear_chain_of,
)
from bitgnn.inference.steps.linear_pair import bind_linear_pair
from bitgnn.inference.steps.narrow import bind_narrow_product, bind_rooted_product
from bitgnn.inference.steps.pooled_convolution import bind_pooled_convolution
from bitgnn.inference.steps.products import (
    PRODUCTS,
    bind_aggregated_product,
    bind_float_product,
)
from bitgnn.ops.reference.heads import HEADS

__all__ = ["Executable", "compile_steps"]

MAX_GROUP = 4
"""Steps that one call does at most: packing, product, aggregation and a head or another product."""

PACKING = ("pack", "pack_scaled")


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


@dataclass(frozen=True)
class _Unit:
    """One call before its slots are known.

    Attributes:
        group: the steps it does.
        inputs: registers read.
        outputs: registers written.
        bind: takes slots by register; returns the call.
    """

    group: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    bind: Callable[[Mapping[int, int]], Runner]


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

    Args:
        steps: the steps.
        inputs: registers that are filled before.
        output: register of the result.
        kinds: kinds of steps.
        tensors: the buffers by name.
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
        tuple(source for run in runners for source in sources_of(run)),
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
    position = 0
    while position < len(steps):
        chain = _chain(steps[position:], readers, tensors)
        if chain is not None:
            units.append(chain)
            position += len(chain.group)
            continue
        for length in range(MAX_GROUP, 1, -1):
            group = steps[position : position + length]
            if len(group) == length and _is_private(group, readers):
                binds = _binder(group, [_own(step, tensors) for step in group])
                if binds is not None:
                    units.append(_unit(group, tensors, binds))
                    break
        else:
            group = steps[position : position + 1]
            units.append(_unit(group, tensors, partial(_bind_alone, kinds[group[0].kind])))
        position += len(group)
    return units


def _chain(
    steps: Sequence[Step], readers: Mapping[int, int], tensors: Mapping[str, Tensor]
) -> _Unit | None:
    """Linear layers at the head of the steps as one call, where the device has one for them."""
    group = steps[: chain_length(steps)]
    if not group or not _is_private(group, readers):
        return None
    own = [_own(step, tensors) for step in group]
    chain = linear_chain_of(group, own)
    if chain is None:
        return None
    return _unit(group, tensors, partial(bind_linear_chain, chain=chain))


def _is_private(group: Sequence[Step], readers: Mapping[int, int]) -> bool:
    """Whether every result inside a group of steps is read by the next step there alone."""
    return all(
        set(step.outputs) <= set(following.inputs)
        and all(readers[register] == 1 for register in step.outputs)
        for step, following in itertools.pairwise(group)
    )


Own = Sequence[Mapping[str, Tensor]]


def _binder(group: Sequence[Step], own: Own) -> Callable[[Sequence[Step], Own], Runner] | None:
    """How to bind a group of steps as one call; None where no operator does it."""
    kinds = [step.kind for step in group]
    packs, length = kinds[0] in PACKING, len(kinds)
    candidate: Callable[[Sequence[Step], Own], Any] | None = None
    if kinds[-1] in HEADS:
        candidate = _bind_headed if length == 3 + packs else None
    elif kinds[-1] == "bmm_add" and length == 3 + packs:
        candidate = _bind_rooted
    elif length == 3:
        candidate = _bind_packed_aggregated if packs else _bind_joint
    elif length == 2 and packs:
        candidate = _bind_packed if kinds[1] in PRODUCTS else None
    elif length == 2:
        candidate = _bind_aggregated if kinds[0] in PRODUCTS else _bind_joint
    return None if candidate is None or candidate(group, own) is None else candidate


def _bind_packed(group: Sequence[Step], own: Own) -> Any:
    return bind_float_product(group[0], group[1], own[0], own[1])


def _bind_aggregated(group: Sequence[Step], own: Own) -> Any:
    parts = (group[0], group[1], own[0], own[1])
    return bind_narrow_product(*parts) or bind_aggregated_product(*parts)


def _bind_packed_aggregated(group: Sequence[Step], own: Own) -> Any:
    parts = (group[1], group[2], own[1], own[2], group[0], own[0])
    return bind_narrow_product(*parts) or bind_aggregated_product(*parts)


def _bind_headed(group: Sequence[Step], own: Own) -> Any:
    product, aggregation, head = group[-3:]
    packing, pack_tensors = (group[0], own[0]) if len(group) == MAX_GROUP else (None, None)
    return bind_narrow_product(product, aggregation, own[-3], own[-2], packing, pack_tensors, head)


def _bind_rooted(group: Sequence[Step], own: Own) -> Any:
    packing, pack_tensors = (group[0], own[0]) if len(group) == MAX_GROUP else (None, None)
    product, aggregation, root = group[-3:]
    return bind_rooted_product(
        product, aggregation, root, own[-3], own[-2], own[-1], packing, pack_tensors
    )


def _bind_joint(group: Sequence[Step], own: Own) -> Any:
    joint = bind_joint_product(group, own) or bind_linear_pair(group, own)
    return joint or bind_pooled_convolution(group, own)


def _bind_alone(kind: StepKind, group: Sequence[Step], own: Own) -> Runner:
    return kind.bind(group[0], own[0])


def _own(step: Step, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensors[buffer] for name, buffer in step.tensors.items()}


def _unit(
    group: Sequence[Step],
    tensors: Mapping[str, Tensor],
    bind: Callable[[Sequence[Step], Own], Runner],
) -> _Unit:
    """A call that does a group of steps."""
    own = [_own(step, tensors) for step in group]
    inner = tuple(register for step in group[:-1] for register in step.outputs)
    inputs = tuple(r for step in group for r in step.inputs if r not in inner)
    return _Unit(
        tuple(group),
        inputs,
        group[-1].outputs,
        lambda slots: bind([_placed(step, slots) for step in group], own),
    )


def _placed(step: Step, slots: Mapping[int, int]) -> Step:
    """The step with slots in place of registers; -1 where a call of several steps keeps none."""
    return replace(
        step,
        inputs=tuple(slots.get(register, -1) for register in step.inputs),
        outputs=tuple(slots.get(register, -1) for register in step.outputs),
    )


def _clear(slots: Sequence[int]) -> Runner:
    """Let go of values that nothing reads any more."""
    held = tuple(slots)

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        for slot in held:
            v[slot] = None

    return run
