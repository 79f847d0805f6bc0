"""The operator table: shapes of the operands and results of each operator, beside its reference.

A row reads ``"x:N,K threshold:K -> bits:N,K"``. A capital letter is a size that the first operand
with it sets (``U`` that of vectors of words), ``W(k)`` the words that hold ``k`` features, a small
letter an integer argument, ``P-1`` one less, ``_`` any size. Operands that are not named may have
any shape. A result is ``bits`` (words of its last size), ``floats``, ``value`` (int32 where
``integer``, else float32) or ``out`` (bits where ``out_bits``, else float32); what cannot be said
so is a function.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bitgnn.bits.tensor import words_for

WORDS = "U"
"""Size of vectors of words."""

PACKED_X = "x:N,W(size) x_scale:N"
PACKED_W = "w:M,W(size) w_scale:M"
FLOAT_X = "x:N,K x_threshold:K x_gain:K"
EITHER_X = "x:N,_ x_scale:N x_threshold:size x_gain:size"
PRODUCT = "bias:M threshold:M flip:M"
CSR = "rowptr:P indices:E row:P-1"
SLICES = (
    "rowptr:P row:P-1 local_indices:_ group_steps:_ group_places:_ slice_groups:_ row_slots:_ "
    "row_items:_"
)

Reference = TypeVar("Reference", bound=Callable[..., Any])
_SIZE = re.compile(r"W\((\w+)\)|([+-]?\w+)")


class Vector(NamedTuple):
    """An optional vector among the operands.

    Attributes:
        place: of the vector among the arguments.
        name: of the argument.
        dtype: that it must have.
        source: place of the argument that its size comes from.
        axis: of that argument, None for an integer.
        change: added to that.
    """

    place: int
    name: str
    dtype: torch.dtype
    source: int
    axis: int | None
    change: int


@dataclass(frozen=True)
class Operator:
    """A row of the table.

    Attributes:
        name: of the operator.
        reference: its definition in plain PyTorch, whose signature is the schema.
        operands: sizes of each operand that has rules, by name.
        results: kind and sizes of each result, or a function of the arguments that it names.
        vectors: operands that front ends check.
    """

    name: str
    reference: Callable[..., Any]
    operands: Mapping[str, tuple[str, ...]]
    results: tuple[tuple[str, tuple[str, ...]], ...] | Callable[..., Any]
    vectors: tuple[Vector, ...]

    def check(
        self, *arguments: Any, **keywords: Any
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Arguments by name, and the sizes that letters stand for, which may be symbolic.

        Raises:
            RuntimeError: a vector's dtype, an operand's number of dimensions or a size does not
                fit.
        """
        bound = inspect.signature(self.reference).bind(*arguments, **keywords)
        bound.apply_defaults()
        given = bound.arguments
        for vector in self.vectors:
            held = given[vector.name]
            if held is not None and held.dtype != vector.dtype:
                raise RuntimeError(
                    f"{self.name}: {vector.name} must be {vector.dtype}, got {held.dtype}"
                )
        return given, self._sizes(given)

    def fake(self, *arguments: Any, **keywords: Any) -> Any:
        """Empty results of the right shapes and dtypes, of arguments that :meth:`check` took."""
        given, sizes = self.check(*arguments, **keywords)
        if callable(self.results):
            return self.results(
                *(given[name] for name in inspect.signature(self.results).parameters)
            )
        like = next(iter(given.values()))
        made = tuple(_empty(like, kind, shape, given, sizes) for kind, shape in self.results)
        return made if len(made) > 1 else made[0]

    def _sizes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What each capital letter stands for, all operands being checked."""
        sizes: dict[str, Any] = {}
        for name, wanted in self.operands.items():
            tensor = given[name]
            if not isinstance(tensor, Tensor):
                continue
            if tensor.dim() != len(wanted):
                raise RuntimeError(
                    f"{self.name}: {name} must have {len(wanted)} dimensions, got {tensor.dim()}"
                )
            for axis, size in enumerate(wanted):
                expected = None if size == "_" else _size(size, given, sizes)
                if expected is None:
                    sizes[size] = tensor.size(axis)
                else:
                    message = _message(self.name, name, tensor, axis, expected)
                    torch._check(tensor.size(axis) == expected, message)
        return sizes


TABLE: dict[str, Operator] = {}
"""Every operator that has a reference, by name."""
HOST_TABLE: dict[str, Operator] = {}
"""Those for the CPU alone; values of their operands set the sizes of their results."""
OPERATORS: dict[str, Callable[..., Any]] = {}
"""The references, by name."""


def operator(
    row: str, results: Callable[..., Any] | None = None, *, on_host: bool = False
) -> Callable[[Reference], Reference]:
    """Enter a reference in the table.

    Args:
        row: operands and, behind an arrow, results.
        results: in place of an arrow, makes results out of the arguments that it names.
        on_host: the operator is for the CPU alone.
    """

    def enter(reference: Reference) -> Reference:
        name, parameters = reference.__name__, inspect.signature(reference).parameters
        left, _, right = row.partition("->")
        operands = {key: sizes for key, sizes in _parts(left).items() if key in parameters}
        made = results or tuple(_parts(right).items())
        made_row = Operator(name, reference, operands, made, _vectors(operands, parameters))
        if on_host:
            HOST_TABLE[name] = made_row
        else:
            TABLE[name], OPERATORS[name] = made_row, reference
        return reference

    return enter


def on_one_device(name: str, fake: Callable[..., Any]) -> Callable[..., Any]:
    """The fake of an operator, for operands that are all on one device.

    With one operand on the meta device fakes run in place of kernels, and would return memory of
    another operand's device that nothing was written to.
    """

    def checked(*arguments: Any, **keywords: Any) -> Any:
        leaves = tree_leaves((arguments, keywords))
        devices = {value.device for value in leaves if isinstance(value, Tensor)}
        if len(devices) > 1:
            found = " and ".join(sorted(map(str, devices)))
            raise RuntimeError(f"{name}: tensors must be on one device, got {found}")
        return fake(*arguments, **keywords)

    return checked


def _parts(row: str) -> dict[str, tuple[str, ...]]:
    """Sizes by name."""
    pairs = (part.split(":") for part in row.split())
    return {name: tuple(sizes.split(",")) for name, sizes in pairs}


def _size(size: str, given: Mapping[str, Any], sizes: Mapping[str, Any]) -> Any | None:
    """What a size stands for, None where it is set now."""
    total: Any = 0
    for words, term in _SIZE.findall(size):
        name = words or term.lstrip("+-")
        value = int(name) if name.isdigit() else given[name] if name.islower() else sizes.get(name)
        if value is None:
            return None
        total = total + (words_for(value) if words else -value if term[0] == "-" else value)
    return total


def _empty(
    like: Tensor,
    kind: str,
    shape: tuple[str, ...],
    given: Mapping[str, Any],
    sizes: Mapping[str, Any],
) -> Tensor:
    """A result without values."""
    whole: list[Any] = [_size(size, given, sizes) for size in shape]
    if kind == "bits" or (kind == "out" and given["out_bits"]):
        return like.new_empty((*whole[:-1], words_for(whole[-1])), dtype=torch.int32)
    integer = kind == "value" and given["integer"]
    return like.new_empty(whole, dtype=torch.int32 if integer else torch.float32)


def _vectors(
    operands: Mapping[str, tuple[str, ...]], parameters: Mapping[str, inspect.Parameter]
) -> tuple[Vector, ...]:
    """The optional operands of one dimension, and where their sizes come from."""
    places = {name: place for place, name in enumerate(parameters)}
    axes: dict[str, tuple[int, int | None]] = {
        name: (place, None) for name, place in places.items()
    }
    found = []
    for name, sizes in operands.items():
        base, _, less = sizes[0].partition("-")
        if parameters[name].default is inspect.Parameter.empty:
            for axis, size in enumerate(sizes):
                axes.setdefault(size, (places[name], axis))
        elif len(sizes) == 1 and base in axes and base != "_":
            dtype = torch.bool if name == "flip" else torch.float32
            dtype = torch.int32 if base == WORDS else dtype
            found.append(Vector(places[name], name, dtype, *axes[base], -int(less or 0)))
    return tuple(found)


def _message(name: str, operand: str, tensor: Tensor, axis: int, size: Any) -> Callable[[], str]:
    return lambda: (
        f"{name}: {operand} must have size {size} along dimension {axis}, got {tensor.size(axis)}"
    )
