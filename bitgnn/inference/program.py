"""The form of a frozen model: a list of operator calls between registers, printed and saved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from bitgnn.inference.operators import argument_names

Form = Literal[
    "floats", "bits", "codes", "scale", "classes", "image_bits", "sums", "pixels", "planes", "counts",
    "unused",
]
CALL = "call"
"""In place of an operator: the user's own code, a module or function that no operator stands for."""
PACKING = (
    "pack", "pack_scaled", "pack_standardized", "pack_int8", "pack_images", "pack_patches",
)  # fmt: skip
"""Operators behind which the features may be known by their bits or codes alone."""
_DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


class Register(NamedTuple):
    """What a register holds for each node or image.

    Attributes:
        form: ``"floats"`` (float32 ``[N, size]``), ``"bits"`` (words ``[N, ceil(size / 32)]``),
            ``"codes"`` (int8 ``[N, 16 * ceil(size / 16)]``), ``"scale"`` (float32 ``[N]``),
            ``"planes"`` (ternary words ``[N, 2, ceil(size / 32)]``), ``"counts"`` (int32 ``[N]``)
            or ``"classes"`` (int64 ``[N]``, each below ``size``).
            Of images: ``"floats"`` (``[N, size, H, W]``), ``"image_bits"`` (words
            ``[N, H, W, ceil(size / 32)]``), ``"sums"`` (int16 or int32 ``[N, H, W, size]``) or
            ``"pixels"`` (float32 ``[N, H, W, size]``). ``"unused"`` is a result nobody asked for.
        size: number of features or channels; None where it is known at run time only.
    """

    form: Form
    size: int | None

    def __str__(self) -> str:
        return f"{self.form}[{'?' if self.size is None else self.size}]"


class Ref(NamedTuple):
    """A register among the arguments of a call."""

    register: int

    def __str__(self) -> str:
        return f"%{self.register}"


class Buffer(NamedTuple):
    """A tensor of the model among the arguments of a call."""

    name: str

    def __str__(self) -> str:
        return self.name


class Part(NamedTuple):
    """A part of an adjacency among the arguments, such as ``graph0.rowptr``."""

    graph: int
    name: str

    def __str__(self) -> str:
        return f"graph{self.graph}.{self.name}"


@dataclass(frozen=True)
class Call:
    """One call of an operator, for a module of the original model (``layer``).

    Attributes:
        operator: its name; :data:`CALL` for the user's own code, whose number is the first argument.
        layer: name of the module.
        arguments: plain values, registers, buffers and parts of graphs; what is left out has its
            default.
        outputs: registers of the results, each written by one call only.
    """

    operator: str
    layer: str
    arguments: tuple[Any, ...]
    outputs: tuple[int, ...]

    @property
    def kind(self) -> str:
        """The operator's name without namespace and overload."""
        return self.operator.partition("::")[2].partition(".")[0] or self.operator

    @property
    def named(self) -> dict[str, Any]:
        """Arguments by their names."""
        if self.operator == CALL:
            return {str(place): value for place, value in enumerate(self.arguments)}
        return dict(zip(argument_names(self.operator), self.arguments, strict=False))

    @property
    def inputs(self) -> tuple[int, ...]:
        """Registers that are read."""
        return tuple(a.register for a in _leaves(self.arguments) if isinstance(a, Ref))

    @property
    def tensors(self) -> dict[str, str]:
        """Names of the buffers by those of the arguments."""
        return {name: a.name for name, a in self.named.items() if isinstance(a, Buffer)}

    @property
    def attributes(self) -> dict[str, Any]:
        """Plain values among the arguments by name."""
        of_tensors = (Ref, Buffer, Part, Tensor, type(None))
        return {name: a for name, a in self.named.items() if not isinstance(a, of_tensors)}

    @property
    def graph(self) -> int | None:
        """Number of the adjacency that is read."""
        return next((a.graph for a in self.arguments if isinstance(a, Part)), None)

    def __str__(self) -> str:
        def text(value: Any) -> str:
            if isinstance(value, list):
                return f"[{', '.join(map(text, value))}]"
            return str(value)

        return f"{self.operator}({', '.join(map(text, self.arguments))})"

    def description(self) -> dict[str, Any]:
        """Plain values that :meth:`from_description` reads."""
        arguments = [_plain(value) for value in self.arguments]
        return {**vars(self), "arguments": arguments, "outputs": list(self.outputs)}

    @classmethod
    def from_description(cls, description: Any) -> Call:
        """Read a call; a ValueError says which entry is missing, left over or of a wrong type."""
        expected = {"operator": str, "layer": str, "arguments": list, "outputs": list}
        if not isinstance(description, dict) or description.keys() != expected.keys():
            raise ValueError(f"a call must have the entries {sorted(expected)}, got {description}")
        for name, kind in expected.items():
            if not isinstance(description[name], kind):
                raise ValueError(f"entry {name!r} of a call is wrong: {description[name]!r}")
        outputs = tuple(map(_number, description["outputs"]))
        arguments = tuple(map(_unplain, description["arguments"]))
        return cls(description["operator"], description["layer"], arguments, outputs)


@dataclass(frozen=True)
class Program:
    """Calls from the features in register 0 to the scores.

    Attributes:
        in_channels: width of the features; 0 where nothing tells it.
        calls: in the order they run.
        registers: what each register holds, by number.
        output: register of the result.
        entry: number of calls in front of the binary part: they end in the one packing call behind
            which only bits or codes of the features are used. None where floats are needed.
    """

    in_channels: int
    calls: tuple[Call, ...]
    registers: tuple[Register, ...]
    output: int
    entry: int | None = None

    def __str__(self) -> str:
        lines = [f"%0: {self.registers[0]}"]
        for call in self.calls:
            written = ", ".join(f"%{n}: {self.registers[n]}" for n in call.outputs)
            lines.append(f"{written} = {call}  # {call.layer}")
        return "\n".join([*lines, f"return %{self.output}"])

    def description(self) -> dict[str, Any]:
        """Plain values that :meth:`from_description` reads."""
        calls = [call.description() for call in self.calls]
        return {**vars(self), "calls": calls, "registers": [list(r) for r in self.registers]}

    @classmethod
    def from_description(cls, description: Any) -> Program:
        """Read a program, whose entries must be there and of their types, else ValueError.

        :func:`~bitgnn.inference.checks.check` then says whether it can run.
        """
        names = ("in_channels", "calls", "registers", "output", "entry")
        if not isinstance(description, dict) or set(names) - description.keys():
            raise ValueError(f"a program must have the entries {list(names)}")
        in_channels, calls, registers, output, entry = (description[name] for name in names)
        if not isinstance(calls, list) or not isinstance(registers, list):
            raise ValueError("calls and registers of a program must be lists")
        return cls(
            _number(in_channels),
            tuple(Call.from_description(call) for call in calls),
            tuple(map(_register, registers)),
            _number(output),
            None if entry is None else _number(entry),
        )


def _leaves(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _leaves(value)
        else:
            yield value


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"registers and widths must be numbers, got {value!r}")
    return value


def _register(value: Any) -> Register:
    known = isinstance(value, list) and len(value) == 2 and value[0] in get_args(Form)
    if not known or not (value[1] is None or type(value[1]) is int):
        raise ValueError(f"a register must be a form and a size, got {value!r}")
    return Register(*value)


def _plain(value: Any) -> Any:
    """An argument as JSON holds it."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, Ref | Buffer | Part):
        return {type(value).__name__.lower(): list(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _unplain(value: Any) -> Any:
    """The inverse of :func:`_plain`; ValueError for anything else."""
    if isinstance(value, list):
        return [_unplain(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    match list(value.items()):
        case [("ref", [int(number)])]:
            return Ref(_number(number))
        case [("buffer", [str(name)])]:
            return Buffer(name)
        case [("part", [int(graph), str(name)])]:
            return Part(_number(graph), name)
        case [("dtype", name)] if name in _DTYPES:
            return _DTYPES[name]
        case [("float", "inf" | "-inf" | "nan" as text)]:
            return float(text)
    raise ValueError(f"an argument of a call is wrong: {value}")
