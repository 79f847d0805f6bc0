"""One step of a frozen model, and how steps of a kind are checked and bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from bitgnn.bits import BitTensor

Form = Literal["floats", "bits", "scale", "classes", "image_bits", "sums"]


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
        return {
            "kind": self.kind,
            "layer": self.layer,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "attributes": dict(self.attributes),
            "tensors": dict(self.tensors),
            "graph": self.graph,
        }

    @classmethod
    def from_description(cls, description: Any) -> Step:
        """Read a step and check the type of every entry.

        Raises:
            ValueError: an entry is missing, left over or of the wrong type.
        """
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
        return cls(
            description["kind"],
            description["layer"],
            tuple(description["inputs"]),
            tuple(description["outputs"]),
            description["attributes"],
            description["tensors"],
            description["graph"],
        )


Tensors = Mapping[str, Tensor]
Apply = Callable[..., Any]
"""Takes what the registers read hold and, last, the adjacency in use; gives what is written."""
Runner = Callable[[list[Any], Sequence[Any]], None]
"""A bound step: reads and writes the registers, given the adjacencies."""


def runner_of(
    apply: Apply, inputs: Sequence[int], outputs: Sequence[int], graph: int | None
) -> Runner:
    """The call of a function on registers and, where there is one, an adjacency.

    The usual numbers of registers have a form of their own, without lists that a call would fill.
    """
    (first, second, *_), out = (*inputs, 0, 0), outputs[0]

    def from_one(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = apply(v[first])

    def from_one_over_graph(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = apply(v[first], graphs[graph])  # type: ignore[index]

    def from_two(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = apply(v[first], v[second])

    def from_two_over_graph(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = apply(v[first], v[second], graphs[graph])  # type: ignore[index]

    def from_many(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = apply(*[v[i] for i in inputs])

    def from_many_over_graph(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = apply(*[v[i] for i in inputs], graphs[graph])  # type: ignore[index]

    def to_two(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out], v[outputs[1]] = apply(*[v[i] for i in inputs])

    if len(outputs) == 2:
        return to_two
    if graph is None:
        return {1: from_one, 2: from_two}.get(len(inputs), from_many)
    forms = {1: from_one_over_graph, 2: from_two_over_graph}
    return forms.get(len(inputs), from_many_over_graph)


def derives_from(tensors: Iterable[Tensor]) -> Callable[[Apply], Apply]:
    """Mark a function with buffers that it derived others from: a write to them makes it stale."""

    def mark(apply: Apply) -> Apply:
        vars(apply)["sources"] = tuple(tensors)
        return apply

    return mark


class StepCheck:
    """A step while it is checked. Tensors that a check has taken are gone from ``tensors``.

    Every method raises ValueError where the step has something else.
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

    def tensor(self, name: str, dtype: torch.dtype, *shape: int | None) -> Tensor:
        """Take a tensor of this type and shape, in which None stands for any length."""
        tensor = self.tensors.pop(name, None)
        if tensor is None:
            raise ValueError(f"tensor {name} is missing")
        pairs = zip(tensor.shape, shape, strict=False)
        fits = tensor.dim() == len(shape) and all(wanted in (size, None) for size, wanted in pairs)
        if tensor.dtype != dtype or not fits:
            raise ValueError(
                f"{name} must be {dtype} {list(shape)}, got {tensor.dtype} {list(tensor.shape)}"
            )
        return tensor

    def packed_weight(self, size: int, out: int) -> None:
        """Take the packed weight of a product."""
        weight = self.tensors.pop("weight", None)
        if weight is None:
            raise ValueError("tensor weight is missing")
        BitTensor(weight, size).validate()  # dtype, shape and clear padding
        if weight.size(0) != out:
            raise ValueError(f"weight must have {out} rows, got {weight.size(0)}")

    def channel_mask(self, name: str, size: int) -> None:
        """Take a row of words whose set bits are channels."""
        mask = self.tensors.pop(name, None)
        if mask is None:
            raise ValueError(f"tensor {name} is missing")
        BitTensor(mask.unsqueeze(0), size).validate()

    def ternary_scale(self) -> None:
        """Take the scale of ternary values, one number above 0."""
        scale = self.tensor("scale", torch.float32, 1)
        if not (bool(scale > 0) and bool(scale.isfinite())):
            raise ValueError(f"scale must be positive and finite, got {float(scale)}")

    def vectors(self, size: int | None, *names: str, required: Sequence[str] = ()) -> None:
        """Allow the tensors that are left to be these, ``[size]``: bool flips, others float32."""
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
