"""The operator table: one row for arguments, sizes and results of each operator, and its formula.

A row such as ``"x:N,W(size) size:int threshold?:size integer=False -> bits:N,size"`` holds the
arguments of ``torch.ops.bitgnn`` in their order. After a colon stands the type of an argument
(``int``, ``ints``, ``float``, ``bool``, ``dtype`` or ``tensors``) or the sizes of a tensor, which
may have any shape where there are none; after ``@`` the dtypes that it may have, of
:data:`DTYPES`, where they do not follow from its sizes or its name. ``?`` marks what is None by
default, ``*`` what may be None but must be given; a literal after ``=`` is a default.

A capital letter is a size that the first operand with it sets (``U`` that of vectors of words),
``W(k)`` the words that hold ``k`` features, ``C(k)`` the bytes of a row of ``k`` 8-bit codes, a
small letter an integer argument, ``P-1`` one less, ``_`` any size. A result is ``bits`` (words of
its last size), ``codes`` (int8, rows of codes), ``floats``, ``value`` (int32 where ``integer``,
else float32) or ``out`` (bits where ``out_bits``, else float32); what cannot be said so is a
function of the arguments.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace as Arguments
from typing import Any, Optional

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bitgnn.bits.int8 import bytes_for
from bitgnn.bits.tensor import words_for

WORDS = "U"
"""Size of vectors of words."""

CSR = "rowptr:P indices:E"
SLICES = (
    "rowptr:P local_indices:_ group_steps:_ group_places:_ slice_groups:_ row_slots:_ row_items:_ "
    "slice_size:int places:int"
)
SCALES = "x_scale?:N w_scale?:M"
COMPARED = "bias?:M threshold?:M flip?:M"
SHIFTED = "x_threshold?:size x_gain?:size"

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
POINTERS = (torch.int32, torch.int64)
DTYPES: Mapping[str, tuple[torch.dtype, ...]] = {
    "bool": (torch.bool,),
    "float32": (torch.float32,),
    "int8": (torch.int8,),
    "int16": (torch.int16,),
    "int32": (torch.int32,),
    "int64": (torch.int64,),
    "floats": FLOATS,
    "packable": (*FLOATS, torch.float64, torch.uint8),
    "packable_or_words": (*FLOATS, torch.float64, torch.uint8, torch.int32),
    "pixels": (*FLOATS, torch.uint8),
    "summable": (*FLOATS, torch.int8, torch.int16),
    "sums": (torch.int16, torch.int32),
    "pointers": POINTERS,
}
"""Dtypes of operands by the names that rows give them."""
_DTYPES_BY_NAME: Mapping[str, str] = {
    "flip": "bool",
    "rowptr": "pointers",
    "tile_rowptr": "pointers",
    "tiles": "int16",
    "local_indices": "int16",
    **dict.fromkeys(("indices", "tile_cols", "group_steps", "group_places"), "int32"),
    **dict.fromkeys(("slice_groups", "row_slots", "row_items", "prepared"), "int32"),
    **dict.fromkeys(("counts", "q_counts", "k_counts", "a_counts", "v_counts"), "int32"),
}
"""Dtypes of operands that are called so; others are float32."""

_ARGUMENT = re.compile(r"(\w+)([?*]?)(?::([^\s=@]+))?(?:@(\w+))?(?:=(\w+))?")
_SIZE = re.compile(r"([WC])\((\w+)\)|([+-]?\w+)")
_TYPES: Mapping[str, Any] = {
    "int": int,
    "ints": Sequence[int],
    "float": float,
    "bool": bool,
    "dtype": torch.dtype,
    "tensors": list[Tensor],
}


@dataclass(frozen=True)
class Operator:
    """A row of the table: the definition in plain PyTorch, whose signature is the schema."""

    name: str
    reference: Callable[..., Any]
    operands: Mapping[str, tuple[str, ...]]
    """Sizes of each operand that has rules."""
    results: tuple[tuple[str, tuple[str, ...]], ...] | Callable[[Arguments], Any]
    """Kind and sizes of each result, or a function of the arguments."""
    dtypes: Mapping[str, tuple[torch.dtype, ...]]
    """Dtypes that each operand may have."""
    parameters: Mapping[str, bool]
    """Arguments in their order, and whether they may be left out."""

    def check(self, *arguments: Any, **keywords: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments by name, and the sizes that letters stand for, which may be symbolic.

        RuntimeError is raised where an operand's dtype, number of dimensions or size does not fit.
        """
        bound = inspect.signature(self.reference).bind(*arguments, **keywords)
        bound.apply_defaults()
        given = bound.arguments
        for name, dtypes in self.dtypes.items():
            held = given[name]
            if held is not None and held.dtype not in dtypes:
                wanted = " or ".join(map(str, dtypes))
                raise RuntimeError(f"{self.name}: {name} must be {wanted}, got {held.dtype}")
        return given, self._sizes(given)

    def fake(self, *arguments: Any, **keywords: Any) -> Any:
        """Empty results of the right shapes and dtypes, of arguments that :meth:`check` took."""
        given, sizes = self.check(*arguments, **keywords)
        if callable(self.results):
            return self.results(Arguments(**given))
        like = next(iter(given.values()))
        made = tuple(_empty(like, kind, shape, given, sizes) for kind, shape in self.results)
        return made if len(made) > 1 else made[0]

    def _sizes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Values of all capital letters; checks all operands."""
        sizes: dict[str, Any] = {}
        held = {name: given[name] for name in self.operands if given[name] is not None}
        for name, tensor in held.items():
            wanted = self.operands[name]
            if tensor.dim() != len(wanted):
                raise RuntimeError(
                    f"{self.name}: {name} must have {len(wanted)} dimensions, got {tensor.dim()}"
                )
            for axis, size in enumerate(wanted):
                if size.isupper() and size.isalpha():
                    sizes.setdefault(size, tensor.size(axis))
        for name, tensor in held.items():
            for axis, size in enumerate(self.operands[name]):
                expected = None if size == "_" else size_of(size, given, sizes)
                if expected is not None:
                    message = _message(self.name, name, tensor, axis, expected)
                    torch._check(tensor.size(axis) == expected, message)
        return sizes


TABLE: dict[str, Operator] = {}
"""Every operator that has a reference, by name."""
HOST_TABLE: dict[str, Operator] = {}
"""Operators of the CPU only; operands' values set the sizes of their results."""
OPERATORS: dict[str, Callable[..., Any]] = {}
"""The references, by name."""


def operator(
    row: str, results: Callable[[Arguments], Any] | None = None, *, on_host: bool = False
) -> Callable[[Callable[[Arguments], Any]], Callable[..., Any]]:
    """Turn a formula over an operator's arguments into its reference, and enter it in the table.

    Args:
        row: arguments and, after an arrow, results.
        results: in place of an arrow, makes results out of the arguments.
        on_host: the operator is only for the CPU.
    """
    left, _, right = row.partition("->")
    parameters, operands, dtypes = _parsed(left)
    made = results or tuple(
        (kind, tuple(sizes.split(","))) for kind, sizes in re.findall(r"(\w+):(\S+)", right)
    )

    def enter(formula: Callable[[Arguments], Any]) -> Callable[..., Any]:
        returned = inspect.signature(formula, eval_str=True).return_annotation
        signature = inspect.Signature(list(parameters.values()), return_annotation=returned)

        @functools.wraps(formula)
        def reference(*arguments: Any, **keywords: Any) -> Any:
            bound = signature.bind(*arguments, **keywords)
            bound.apply_defaults()
            return formula(Arguments(**bound.arguments))

        reference.__signature__ = signature  # type: ignore[attr-defined]
        name = formula.__name__
        optional = {n: p.default is not inspect.Parameter.empty for n, p in parameters.items()}
        entered = Operator(name, reference, operands, made, dtypes, optional)
        if on_host:
            HOST_TABLE[name] = entered
        else:
            TABLE[name], OPERATORS[name] = entered, reference
        return reference

    return enter


def changed(a: Arguments, **values: Any) -> Arguments:
    """Arguments with some replaced or added."""
    return Arguments(**{**vars(a), **values})


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


def _parsed(
    row: str,
) -> tuple[
    dict[str, inspect.Parameter], dict[str, tuple[str, ...]], dict[str, tuple[torch.dtype, ...]]
]:
    """Parameters, and the sizes and dtypes of tensors with rules, by name."""
    parameters, operands, dtypes = {}, {}, {}
    for argument in row.split():
        match = _ARGUMENT.fullmatch(argument)
        assert match is not None, argument
        name, mark, kind, dtype, literal = match.groups()
        default: Any = {"?": None}.get(mark, inspect.Parameter.empty)
        annotation: Any = _TYPES.get(kind, Tensor)
        if literal is not None:
            default = ast.literal_eval(literal)
            annotation = type(default)
        if mark:
            annotation = Optional[annotation]  # noqa: UP045  (made while running)
        parameters[name] = inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation
        )
        if kind is not None and kind not in _TYPES:
            operands[name] = tuple(kind.split(","))
        if literal is None and kind not in _TYPES:
            dtypes[name] = DTYPES[dtype or _usual_dtype(name, kind or "")]
    return parameters, operands, dtypes


def _usual_dtype(name: str, sizes: str) -> str:
    """Dtypes of an operand whose row says none."""
    if "W(" in sizes or sizes.split(",")[-1] == WORDS:
        return "int32"
    return "int8" if "C(" in sizes else _DTYPES_BY_NAME.get(name, "float32")


def size_of(size: str, given: Mapping[str, Any], sizes: Mapping[str, Any]) -> Any | None:
    """Value of a size by arguments and letters, or None if the operand that sets it is left out."""
    total: Any = 0
    for unit, held, term in _SIZE.findall(size):
        name = held or term.lstrip("+-")
        value = int(name) if name.isdigit() else given[name] if name.islower() else sizes.get(name)
        if value is None:
            return None
        if unit:
            value = words_for(value) if unit == "W" else bytes_for(value)
        total = total + (-value if term.startswith("-") else value)
    return total


def _empty(
    like: Tensor,
    kind: str,
    shape: tuple[str, ...],
    given: Mapping[str, Any],
    sizes: Mapping[str, Any],
) -> Tensor:
    """A result without values."""
    whole: list[Any] = [size_of(size, given, sizes) for size in shape]
    if kind == "bits" or (kind == "out" and given["out_bits"]):
        return like.new_empty((*whole[:-1], words_for(whole[-1])), dtype=torch.int32)
    if kind == "codes":
        return like.new_empty((*whole[:-1], bytes_for(whole[-1])), dtype=torch.int8)
    integer = kind == "value" and given["integer"]
    return like.new_empty(whole, dtype=torch.int32 if integer else torch.float32)


def _message(name: str, operand: str, tensor: Tensor, axis: int, size: Any) -> Callable[[], str]:
    return lambda: (
        f"{name}: {operand} must have size {size} along dimension {axis}, got {tensor.size(axis)}"
    )
