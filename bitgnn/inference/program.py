"""The form of a frozen model: a list of operator calls between registers, printed and saved."""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch

from bitgnn.inference.operators import argument_names

Form = Literal[
    "floats",
    "edges",
    "bits",
    "codes",
    "scale",
    "classes",
    "image_bits",
    "sums",
    "pixels",
    "planes",
    "counts",
    "unused",
]
CALL = "call"
"""In place of an operator: the user's own code, which no operator stands for."""
PACKING = (
    "pack", "pack_scaled", "pack_standardized", "pack_int8", "pack_images", "pack_patches",
)  # fmt: skip
"""Operators behind which the features may be known by their bits or codes alone."""
_DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


class Register(NamedTuple):
    """Form of the values in a register, for each node or image.

    Attributes:
        form: ``"floats"`` (float32 ``[N, size]``), ``"edges"`` (the same of the entries of a
            graph, ``[E, size]``), ``"bits"`` (words ``[N, ceil(size / 32)]``),
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
        operator: its name; :data:`CALL` for the user's own code, whose number comes first.
        layer: name of the module, without line breaks.
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
    def graph(self) -> int | None:
        """Number of the adjacency that is read."""
        return next((a.graph for a in self.arguments if isinstance(a, Part)), None)

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(map(_text, self.arguments))})"


@dataclass(frozen=True)
class Program:
    """Calls from the features in register 0 to the scores; ``str()`` is also what a file holds.

    Attributes:
        calls: in the order they run.
        registers: what each register holds, by number.
        output: register of the result.
        inputs: number of registers that hold features, the first ones: one for each type of nodes.
    """

    calls: tuple[Call, ...]
    registers: tuple[Register, ...]
    output: int
    inputs: int = 1

    @property
    def in_channels(self) -> int:
        """Width of the features; 0 where nothing tells it."""
        return self.registers[0].size or 0

    @functools.cached_property
    def entry(self) -> int | None:
        """Number of calls in front of the binary part, which end in a packing call.

        Behind it only bits or codes of the features are used; None where floats are needed.
        """
        if self.inputs > 1:
            return None
        for place, call in enumerate(self.calls):
            if call.kind in PACKING:
                hidden = {0, *(r for before in self.calls[:place] for r in before.outputs)}
                read = {r for after in self.calls[place + 1 :] for r in after.inputs}
                return None if hidden & (read | {self.output}) else place + 1
            if call.graph is not None:
                return None
        return None

    def __str__(self) -> str:
        lines = [f"%{n}: {self.registers[n]}" for n in range(self.inputs)]
        for call in self.calls:
            written = ", ".join(f"%{n}: {self.registers[n]}" for n in call.outputs)
            lines.append(f"{written} = {call}  # {call.layer}")
        return "\n".join([*lines, f"return %{self.output}"])

    @classmethod
    def read(cls, text: Any) -> Program:
        """The inverse of ``str()``; a ValueError names a line that is none of a program.

        :func:`~bitgnn.inference.checks.check` then says whether it can run.
        """
        if not isinstance(text, str):
            raise ValueError(f"a program must be text, got {type(text).__name__}")
        first, *lines, last = text.split("\n") if "\n" in text else ("", "")
        registers, calls = dict([_register(first)]), []
        while lines and " = " not in lines[0]:
            registers.update([_register(lines.pop(0))])
        inputs = len(registers)
        if sorted(registers) != list(range(inputs)):
            raise ValueError(f"features must lie in registers 0 to {inputs - 1}")
        for line in lines:
            match = _LINE.fullmatch(line)
            if match is None:
                raise ValueError(f"a line must be a call, got {line!r}")
            written, operator, arguments, layer = match.groups()
            outputs = [_register(register) for register in written.split(", ")]
            if registers.keys() & dict(outputs).keys() or len(dict(outputs)) != len(outputs):
                raise ValueError(f"a register cannot be written twice: {line!r}")
            registers.update(outputs)
            calls.append(Call(operator, layer, _read_all(arguments), tuple(n for n, _ in outputs)))
        output = re.fullmatch(r"return %(\d+)", last)
        if output is None or sorted(registers) != list(range(len(registers))):
            raise ValueError(f"a program must return a register, of 0 to {len(registers) - 1}")
        held = tuple(registers[number] for number in range(len(registers)))
        return cls(tuple(calls), held, int(output[1]), inputs)


_LINE = re.compile(r"(%[^=]+) = ([\w:.]+)\((.*)\)  # (.*)")


def _leaves(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _leaves(value)
        else:
            yield value


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return repr(value) if isinstance(value, str) else str(value)


def _register(text: str) -> tuple[int, Register]:
    match = re.fullmatch(r"%(\d+): (\w+)\[(\d+|\?)\]", text)
    if match is None or match[2] not in get_args(Form):
        raise ValueError(f"a register must be written as %0: form[size], got {text!r}")
    size = None if match[3] == "?" else int(match[3])
    return int(match[1]), Register(match[2], size)  # type: ignore[arg-type]


def _read_all(text: str) -> tuple[Any, ...]:
    """Arguments as :func:`_text` writes them."""
    try:
        call = ast.parse(f"f({re.sub('%', '_', text)})", mode="eval").body
        assert isinstance(call, ast.Call)
        return tuple(map(_read, call.args))
    except (SyntaxError, ValueError, AssertionError, RecursionError) as error:
        raise ValueError(f"arguments of a call are wrong: {text!r}") from error


def _read(node: ast.expr) -> Any:
    match node:
        case ast.List(elts=parts):
            return [_read(part) for part in parts]
        case ast.Name(id=name) if re.fullmatch(r"_\d+", name):
            return Ref(int(name[1:]))
        case ast.Name(id="inf" | "nan" as name):
            return float(name)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return -math.inf
        case ast.Name(id=name):
            return Buffer(name)
        case ast.Attribute(value=ast.Name(id="torch"), attr=name) if f"torch.{name}" in _DTYPES:
            return _DTYPES[f"torch.{name}"]
        case ast.Attribute(value=ast.Name(id=graph), attr=name) if re.fullmatch(r"graph\d+", graph):
            return Part(int(graph[5:]), name)
    return ast.literal_eval(node)
