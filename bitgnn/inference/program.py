"""The form of a frozen model: a short list of steps between registers, and the rules it obeys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitgnn.inference.step import Register, Step, StepKind, StepReader, Tensors

RESULTS = ("floats", "classes")
"""What a model may hand out."""
PACKING = (
    "pack", "pack_scaled", "pack_standardized", "pack_levels", "pack_images", "pack_patches",
)  # fmt: skip
"""Steps behind which the features may be known by their bits alone."""


@dataclass(frozen=True)
class Program:
    """Steps from the features in register 0 to the scores.

    Attributes:
        in_channels: width of the features; 0 where nothing tells it.
        steps: in the order they run.
        output: register of the result.
        entry: number of steps in front of the binary part: they end in the one packing step behind
            which only bits of the features are used. None where floats are needed throughout.
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
