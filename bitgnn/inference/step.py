"""One step of a frozen model, and how steps of a kind are checked and bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from bitgnn.bits import BitTensor

Form = Literal["floats", "bits", "codes", "scale", "classes", "image_bits", "sums"]


class Register(NamedTuple):
    """What a register holds for each node or image.

    Attributes:
        form: ``"floats"`` (float32 ``[N, size]``), ``"bits"`` (words ``[N, ceil(size / 32)]``),
            ``"codes"`` (int8 ``[N, 16 * ceil(size / 16)]``), ``"scale"`` (float32 ``[N]``) or
            ``"classes"`` (int64 ``[N]``, each below ``size``).
            Of images: ``"floats"`` (``[N, size, H, W]``), ``"image_bits"`` (words
            ``[N, H, W, ceil(size / 32)]``) or ``"sums"`` (int16 or int32 ``[N, H, W, size]``).
        size: number of features or channels; None where it is known at run time only.
    """

    form: Form
    size: int | None


@dataclass(frozen=True)
class Step:
    """One call of an operator or function, for a module of the original model (``layer``).

    Each register is written by one step only. ``tensors`` names the buffer behind each tensor
    argument, ``graph`` is the index of the adjacency in use.
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
        expected: dict[str, Any] = {
            "kind": str, "layer": str, "inputs": list, "outputs": list, "attributes": dict,
            "tensors": dict, "graph": (int, type(None)),
        }  # fmt: skip
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


class StepReader:
    """Attributes and tensors of a step, each checked where it is read.

    Every method raises ValueError where the step has something else, and tensors that were read
    are gone from ``tensors``. Without ``checks``, of steps that have passed them, it only reads.
    """

    def __init__(
        self, step: Step, tensors: Tensors, registers: Sequence[Register] = (), checks: bool = True
    ) -> None:
        self.kind, self.attributes, self.checks = step.kind, dict(step.attributes), checks
        self.num_inputs, self.registers, self.tensors = len(step.inputs), registers, dict(tensors)

    def has(self, **kinds: type | tuple[type, ...]) -> dict[str, Any]:
        """The attributes, which must be these and of these types."""
        if self.checks and self.attributes.keys() != kinds.keys():
            raise ValueError(f"attributes must be {sorted(kinds)}, got {sorted(self.attributes)}")
        for name, kind in kinds.items() if self.checks else ():
            value = self.attributes[name]
            allowed = kind if isinstance(kind, tuple) else (kind,)
            # bool is an int to isinstance, but no size.
            if type(value) not in allowed:
                raise ValueError(f"attribute {name!r} must be {kind}, got {value!r}")
        return self.attributes

    def sizes(self, *names: str, **others: type | tuple[type, ...]) -> list[int]:
        """Attributes of at least 1, beside ``others`` of these types."""
        self.has(**dict.fromkeys(names, int), **others)
        return [self.positive(name) for name in names]

    def positive(self, name: str, default: int | None = None) -> int:
        """An attribute of at least 1."""
        value: Any = self.attributes.get(name, default)
        if self.checks and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
        return int(value)

    def numbers(self, name: str, count: int, least: int) -> list[int]:
        """An attribute of so many numbers, each no smaller than ``least``."""
        values: list[int] = self.attributes[name]
        if self.checks and (
            len(values) != count or not all(type(v) is int and v >= least for v in values)
        ):
            raise ValueError(f"{name} must be {count} numbers of at least {least}, got {values}")
        return values

    def reads(self, *expected: tuple[str, int | None]) -> None:
        """Require the registers read to hold these forms, of these sizes where both are known."""
        if not self.checks:
            return
        forms, sizes = [form for form, _ in expected], [size for _, size in expected]
        found = [register.form for register in self.registers]
        if found != forms:
            raise ValueError(f"inputs must be {forms}, got {found}")
        for size, register in zip(sizes, self.registers, strict=True):
            if None not in (size, register.size) and size != register.size:
                known = " and ".join(str(size) for size in sizes if size is not None)
                raise ValueError(f"inputs must have {known} features, got {list(self.registers)}")

    def input_sizes(self) -> list[int | None]:
        """Sizes of the registers read; nothing where nothing is checked."""
        return [register.size for register in self.registers]

    def take(self, name: str) -> Tensor:
        """A tensor, which must be there."""
        if name not in self.tensors:
            raise ValueError(f"tensor {name} is missing")
        return self.tensors.pop(name)

    def tensor(self, name: str, dtype: torch.dtype, *shape: int | None) -> Tensor:
        """A tensor of this type and shape, in which None stands for any length."""
        tensor = self.take(name)
        pairs = zip(tensor.shape, shape, strict=False)
        fits = tensor.dim() == len(shape) and all(wanted in (size, None) for size, wanted in pairs)
        if self.checks and (tensor.dtype != dtype or not fits):
            raise ValueError(
                f"{name} must be {dtype} {list(shape)}, got {tensor.dtype} {list(tensor.shape)}"
            )
        return tensor

    def packed_weight(self, size: int, out: int) -> Tensor:
        """The packed weight of a product."""
        weight = self.take("weight")
        if self.checks:
            BitTensor(weight, size).validate()  # dtype, shape and clear padding
            if weight.size(0) != out:
                raise ValueError(f"weight must have {out} rows, got {weight.size(0)}")
        return weight

    def channel_mask(self, name: str, size: int) -> Tensor:
        """A row of words whose set bits are channels."""
        mask = self.take(name)
        if self.checks:
            BitTensor(mask.unsqueeze(0), size).validate()
        return mask

    def ternary_scale(self) -> Tensor:
        """The scale of ternary values, one number above 0."""
        scale = self.tensor("scale", torch.float32, 1)
        if self.checks and not (bool(scale > 0) and bool(scale.isfinite())):
            raise ValueError(f"scale must be positive and finite, got {float(scale)}")
        return scale.view(())

    def vectors(self, size: int | None, *names: str, required: Sequence[str] = ()) -> Tensors:
        """The tensors that are left: these alone, ``[size]``; bool flips, others float32."""
        found, self.tensors = self.tensors, {}
        unknown = sorted(found.keys() - set(names))
        missing = sorted(set(required) - found.keys())
        if unknown or missing:
            raise ValueError(f"tensors {unknown} are unknown, {missing} are missing")
        for name, tensor in found.items() if self.checks else ():
            dtype = torch.bool if name == "flip" else torch.float32
            if tensor.dtype != dtype or tensor.dim() != 1 or size not in (None, tensor.size(0)):
                raise ValueError(
                    f"{name} must be {dtype} [{size}], got {tensor.dtype} {list(tensor.shape)}"
                )
        return found


Read = tuple[Sequence[Register], Apply]
"""What a step writes, and its function with everything looked up."""


@dataclass(frozen=True)
class StepKind:
    """How steps of one kind, which programs and checkpoints name, are checked and bound.

    ``uses_graph`` is ``"pattern"`` for a BitAdjacency, ``"values"`` for one with values, or None.
    """

    name: str
    read: Callable[[StepReader], Read]
    uses_graph: Literal["pattern", "values"] | None = None

    def make(self, step: Step, tensors: Tensors) -> Apply:
        """The function of a step that has been checked."""
        return self.read(StepReader(step, tensors, checks=False))[1]


KINDS: dict[str, StepKind] = {}
"""Every kind by name; a checkpoint can name no other."""


def step_kind(
    *names: str, uses_graph: Literal["pattern", "values"] | None = None
) -> Callable[[Callable[[StepReader], Read]], Callable[[StepReader], Read]]:
    """Make a function the one that reads steps of these kinds."""

    def register(read: Callable[[StepReader], Read]) -> Callable[[StepReader], Read]:
        KINDS.update({name: StepKind(name, read, uses_graph) for name in names})
        return read

    return register
