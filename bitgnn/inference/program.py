"""The form of a frozen model: a short list of steps between registers, and the rules it obeys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from bitgnn.bits import BitTensor

Form = Literal["floats", "bits", "scale", "classes", "image_bits", "sums"]
RESULTS = ("floats", "classes")
"""What a model may hand out."""
PACKING = (
    "pack", "pack_scaled", "pack_standardized", "pack_levels", "pack_images", "pack_patches",
)  # fmt: skip
"""Steps behind which the features may be known by their bits alone."""


class Register(NamedTuple):
    """What a register holds for each node or image.

    Attributes:
        form: ``"floats"`` (float32 ``[N, size]``), ``"bits"`` (words ``[N, ceil(size / 32)]``),
            ``"scale"`` (float32 ``[N]``) or ``"classes"`` (int64 ``[N]``, each below ``size``).
            Of images: ``"floats"`` (``[N, size, H, W]``), ``"image_bits"`` (words
            ``[N, H, W, ceil(size / 32)]``) or ``"sums"`` (int16 or int32 ``[N, H, W, size]``).
        size: number of features or channels; None where it is known at run time only.
    """

    form: Form
    size: int | None


@dataclass(frozen=True)
class Step:
    """One call of an operator or function.

    Attributes:
        kind: name of the :class:`StepKind`.
        layer: module of the original model that the step belongs to, for reports.
        inputs: registers read.
        outputs: registers written, each by one step only.
        attributes: plain values.
        tensors: name of the buffer behind each tensor argument.
        graph: index of the adjacency in use, or None.
    """

    kind: str
    layer: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)
    graph: int | None = None

    def description(self) -> dict[str, Any]:
        """Plain values that :meth:`from_description` reads."""
        registers = {"inputs": list(self.inputs), "outputs": list(self.outputs)}
        own = {"attributes": dict(self.attributes), "tensors": dict(self.tensors)}
        return {**vars(self), **registers, **own}

    @classmethod
    def from_description(cls, description: Any) -> Step:
        """Read a step; a ValueError says which entry is missing, left over or of a wrong type."""
        expected: dict[str, type | tuple[type, ...]] = {
            "kind": str,
            "layer": str,
            "inputs": list,
            "outputs": list,
            "attributes": dict,
            "tensors": dict,
            "graph": (int, type(None)),
        }
        if not isinstance(description, dict) or description.keys() != expected.keys():
            raise ValueError(f"a step must have the entries {sorted(expected)}, got {description}")
        for name, kinds in expected.items():
            if not isinstance(description[name], kinds):
                raise ValueError(f"entry {name!r} of a step is wrong: {description[name]!r}")
        for name in ("inputs", "outputs"):
            if not all(type(register) is int and register >= 0 for register in description[name]):
                raise ValueError(f"registers must be numbers, got {description[name]}")
        if not all(isinstance(name, str) for name in description["tensors"].values()):
            raise ValueError(f"tensors must be named by strings, got {description['tensors']}")
        registers = {name: tuple(description[name]) for name in ("inputs", "outputs")}
        return cls(**{**description, **registers})


Tensors = Mapping[str, Tensor]
Apply = Callable[..., Any]
"""Takes what the registers read hold and, last, the adjacency in use; gives what is written."""


def derives_from(tensors: Iterable[Tensor]) -> Callable[[Apply], Apply]:
    """Mark a function with buffers that it derived others from: a write to them makes it stale."""

    def mark(apply: Apply) -> Apply:
        vars(apply)["sources"] = tuple(tensors)
        return apply

    return mark


class StepCheck:
    """A step while it is checked: every method raises ValueError where it has something else.

    Tensors that a check has taken are gone from ``tensors``; none may be left at its end.
    """

    def __init__(self, step: Step, registers: Sequence[Register], tensors: Tensors) -> None:
        self.kind, self.attributes = step.kind, dict(step.attributes)
        self.registers, self.tensors = registers, dict(tensors)

    def has(self, **kinds: type | tuple[type, ...]) -> dict[str, Any]:
        """Require the attributes to be these and of these types; the attributes."""
        if self.attributes.keys() != kinds.keys():
            raise ValueError(f"attributes must be {sorted(kinds)}, got {sorted(self.attributes)}")
        for name, kind in kinds.items():
            value = self.attributes[name]
            allowed = kind if isinstance(kind, tuple) else (kind,)
            # bool is an int to isinstance, but no size.
            if type(value) not in allowed:
                raise ValueError(f"attribute {name!r} must be {kind}, got {value!r}")
        return self.attributes

    def sizes(self, *names: str, **others: type | tuple[type, ...]) -> list[int]:
        """Require attributes of these names to be at least 1, beside ``others``; the former."""
        self.has(**dict.fromkeys(names, int), **others)
        return [self.positive(name) for name in names]

    def positive(self, name: str, default: int | None = None) -> int:
        """Require an attribute of at least 1."""
        value: Any = self.attributes.get(name, default)
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
        return int(value)

    def numbers(self, name: str, count: int, least: int) -> None:
        """Require an attribute to be so many numbers, each no smaller than ``least``."""
        values = self.attributes[name]
        if len(values) != count or not all(type(v) is int and v >= least for v in values):
            raise ValueError(f"{name} must be {count} numbers of at least {least}, got {values}")

    def reads(self, *expected: tuple[str, int | None]) -> None:
        """Require the registers read to hold these forms, of these sizes where both are known."""
        forms, sizes = [form for form, _ in expected], [size for _, size in expected]
        found = [register.form for register in self.registers]
        if found != forms:
            raise ValueError(f"inputs must be {forms}, got {found}")
        for size, register in zip(sizes, self.registers, strict=True):
            if None not in (size, register.size) and size != register.size:
                known = " and ".join(str(size) for size in sizes if size is not None)
                raise ValueError(f"inputs must have {known} features, got {list(self.registers)}")

    def take(self, name: str) -> Tensor:
        """Take a tensor, which must be there."""
        if name not in self.tensors:
            raise ValueError(f"tensor {name} is missing")
        return self.tensors.pop(name)

    def tensor(self, name: str, dtype: torch.dtype, *shape: int | None) -> Tensor:
        """Take a tensor of this type and shape, in which None stands for any length."""
        tensor = self.take(name)
        pairs = zip(tensor.shape, shape, strict=False)
        fits = tensor.dim() == len(shape) and all(wanted in (size, None) for size, wanted in pairs)
        if tensor.dtype != dtype or not fits:
            raise ValueError(
                f"{name} must be {dtype} {list(shape)}, got {tensor.dtype} {list(tensor.shape)}"
            )
        return tensor

    def packed_weight(self, size: int, out: int) -> None:
        """Take the packed weight of a product."""
        weight = self.take("weight")
        BitTensor(weight, size).validate()  # dtype, shape and clear padding
        if weight.size(0) != out:
            raise ValueError(f"weight must have {out} rows, got {weight.size(0)}")

    def channel_mask(self, name: str, size: int) -> None:
        """Take a row of words whose set bits are channels."""
        BitTensor(self.take(name).unsqueeze(0), size).validate()

    def ternary_scale(self) -> None:
        """Take the scale of ternary values, one number above 0."""
        scale = self.tensor("scale", torch.float32, 1)
        if not (bool(scale > 0) and bool(scale.isfinite())):
            raise ValueError(f"scale must be positive and finite, got {float(scale)}")

    def vectors(self, size: int | None, *names: str, required: Sequence[str] = ()) -> None:
        """Take the tensors that are left: these alone, ``[size]``; bool flips, others float32."""
        unknown = sorted(self.tensors.keys() - set(names))
        missing = sorted(set(required) - self.tensors.keys())
        if unknown or missing:
            raise ValueError(f"tensors {unknown} are unknown, {missing} are missing")
        for name, tensor in self.tensors.items():
            dtype = torch.bool if name == "flip" else torch.float32
            if tensor.dtype != dtype or tensor.dim() != 1 or size not in (None, tensor.size(0)):
                raise ValueError(
                    f"{name} must be {dtype} [{size}], got {tensor.dtype} {list(tensor.shape)}"
                )
        self.tensors.clear()


@dataclass(frozen=True)
class StepKind:
    """How steps of one kind are checked and bound.

    Attributes:
        name: name in programs and checkpoints.
        check: takes the step under check; gives what it writes or raises ValueError.
        make: takes the step and its tensors; gives its function with everything looked up.
        uses_graph: ``"pattern"`` for a BitAdjacency, ``"values"`` for a FloatAdjacency, or None.
    """

    name: str
    check: Callable[[StepCheck], tuple[Register, ...]]
    make: Callable[[Step, Tensors], Apply]
    uses_graph: Literal["pattern", "values"] | None = None


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
) -> tuple[Register, ...]:
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
    check = StepCheck(step, [registers[i] for i in step.inputs], own)
    found = kind.check(check)
    check.vectors(None)
    if len(found) != len(step.outputs) or registers.keys() & set(step.outputs):
        raise ValueError(f"registers {list(step.outputs)} cannot be written")
    return found
