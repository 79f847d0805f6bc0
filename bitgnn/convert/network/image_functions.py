"""Functions and methods in the forward of a convolutional network as values."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.convert.network import functions
from bitgnn.convert.network.image_layers import (
    adaptive_avg_pool,
    avg_pool,
    flattened,
    function_on,
    max_pool,
    of_rank,
)
from bitgnn.convert.network.values import IMAGES, ROWS, Unsupported, Value, with_size
from bitgnn.quantize.pixels import COLOURS, grey, local_binary_patterns

__all__ = ["Length", "Shape", "rule_of"]

_PIXELS = ({2, 3}, {-2, -1}, {2, -1}, {-2, 3})


@dataclass(frozen=True)
class Shape:
    """The shape of a value, known at run time only."""

    value: Value


@dataclass(frozen=True)
class Length:
    """One of its entries."""

    value: Value
    dim: int


def _size(name: str, x: Any, dim: int | None = None) -> Shape | Length:
    if not isinstance(x, Value):
        raise Unsupported("frozen models know no such function")
    return Shape(x) if dim is None else Length(x, dim)


def _getattr(name: str, x: Any, attribute: str, *rest: Any) -> Any:
    if isinstance(x, Value) and attribute == "shape":
        return Shape(x)
    return functions.FUNCTIONS[getattr](name, x, attribute)


def _getitem(name: str, x: Any, key: Any) -> Any:
    if isinstance(x, Shape) and isinstance(key, int):
        return Length(x.value, key)
    return functions.FUNCTIONS[operator.getitem](name, x, key)


def _flatten(name: str, x: Any, start_dim: int = 0, end_dim: int = -1) -> Value:
    if start_dim != 1 or end_dim not in (-1, IMAGES - 1):
        raise Unsupported("only all of an image can be flattened")
    return flattened(name, x)


def _view(name: str, x: Any, *shape: Any) -> Value:
    """``x.view(x.size(0), -1)`` and the like."""
    if len(shape) == 1 and isinstance(shape[0], tuple | list):
        shape = tuple(shape[0])
    if len(shape) != ROWS or not isinstance(x, Value):
        raise Unsupported("only all of an image can be flattened")
    first, second = shape
    keeps_rows = isinstance(first, Length) and first.dim == 0
    if not (keeps_rows and isinstance(second, int)) and not (first == -1 and _is_size(second)):
        raise Unsupported("only all of an image can be flattened")
    rows = flattened(name, x)
    if _is_size(second) and rows.size is None:
        rows.size = second
    return rows


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


def _mean(name: str, x: Any, dim: Any = None, keepdim: bool = False, **options: Any) -> Value:
    dims = {d for d in dim if type(d) is int} if isinstance(dim, tuple | list) else set()
    if dims not in _PIXELS or keepdim or options:
        raise Unsupported("only the mean of all pixels has a form in frozen models")
    value = of_rank(x, IMAGES, name)
    return Value("mean_pixels", name, (value,), value.size, rank=ROWS)


def _of_rows(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Rules that take the last or the second dimension for the features."""

    @functools.wraps(rule)
    def on_rows(name: str, x: Any, *rest: Any, **options: Any) -> Any:
        return rule(name, of_rank(x, ROWS, name), *rest, **options)

    return on_rows


def _entrywise(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Rules of functions of every entry, numbers beside them, and of two operands alike."""

    @functools.wraps(rule)
    def on_entries(name: str, *args: Any, **options: Any) -> Any:
        values = [a for a in args if isinstance(a, Value)]
        if not values or (any(isinstance(a, Tensor) for a in args) and values[0].rank != ROWS):
            raise Unsupported("its operands have no form in frozen models")
        if len(values) == 2:
            _same_rank(*values)
        found = rule(name, *args, **options)
        if not isinstance(found, Value) or found in values:
            return found
        if found.kind == "function" and not found.tensors:
            return function_on(found.inputs[0], name, found.name, **found.attributes)
        found.rank = values[0].rank
        return found

    return on_entries


def _same_rank(a: Value, b: Value) -> None:
    for value, other in ((a, b), (b, a)):
        if value.rank is None and other.rank is not None:
            of_rank(value, other.rank, "")
    if a.rank != b.rank:
        raise Unsupported("its operands have different numbers of dimensions")


_OF_ROWS = (
    functional.softmax, torch.softmax, "softmax", functional.log_softmax, torch.log_softmax,
    "log_softmax", functional.normalize, torch.argmax, "argmax", torch.max, "max",
)  # fmt: skip


def _with_constant(function: str, fallback: Any) -> Callable[..., Any]:
    """Rule for a value and a constant of each channel, ``[C, 1, 1]`` behind images."""
    rule = _entrywise(functions.FUNCTIONS[fallback])
    is_symmetric = function in ("bias", "gain")

    def with_constant(name: str, a: Any, b: Any, **options: Any) -> Any:
        x, other = (b, a) if is_symmetric and isinstance(a, Tensor) else (a, b)
        if options or not isinstance(other, Tensor) or not isinstance(x, Value):
            return rule(name, a, b, **options)
        vector = other.detach().float().flatten()
        of_images = list(other.shape)[-3:] == [vector.numel(), 1, 1]
        of_rows = other.dim() <= ROWS and other.size(-1) == vector.numel()
        if other.dim() == 0 or not (of_images or of_rows) or other.dim() > IMAGES:
            raise Unsupported("its operands have no form in frozen models")
        x = with_size(of_rank(x, IMAGES if of_images else ROWS, name), vector.numel(), name)
        if fallback is operator.sub:
            vector = -vector
        tensors = {function: vector.clone()}
        return Value("function", name, (x,), x.size, function, {}, tensors, rank=x.rank)

    return with_constant


def _of_colours(kind: Any, channels: int) -> Callable[..., Value]:
    def rule(name: str, x: Any) -> Value:
        value = with_size(of_rank(x, IMAGES, name), COLOURS, name)
        return Value(kind, name, (value,), channels, rank=IMAGES)

    return rule


_OWN: dict[Any, Callable[..., Any]] = {
    torch.flatten: _flatten, "flatten": _flatten, "view": _view, "reshape": _view,
    torch.reshape: lambda name, x, shape: _view(name, x, shape),
    "size": _size, getattr: _getattr, operator.getitem: _getitem,
    grey: _of_colours("grey", 1),
    local_binary_patterns: _of_colours("local_binary_patterns", COLOURS),
    torch.cat: functions.concatenated, torch.concat: functions.concatenated,
    torch.mean: _mean, "mean": _mean,
    operator.add: _with_constant("bias", operator.add),
    operator.iadd: _with_constant("bias", operator.add),
    torch.add: _with_constant("bias", operator.add), "add": _with_constant("bias", operator.add),
    operator.sub: _with_constant("bias", operator.sub),
    torch.sub: _with_constant("bias", operator.sub), "sub": _with_constant("bias", operator.sub),
    operator.mul: _with_constant("gain", operator.mul),
    torch.mul: _with_constant("gain", operator.mul), "mul": _with_constant("gain", operator.mul),
    operator.truediv: _with_constant("divisor", operator.truediv),
    torch.div: _with_constant("divisor", operator.truediv),
    "div": _with_constant("divisor", operator.truediv),
    functional.max_pool2d: max_pool, torch.max_pool2d: max_pool,
    functional.avg_pool2d: avg_pool, functional.adaptive_avg_pool2d: adaptive_avg_pool,
}  # fmt: skip


def rule_of(target: Any) -> Callable[..., Any] | None:
    """The rule of a function, or of a method by its name; None where there is none."""
    if target in _OWN:
        return _OWN[target]
    rule = functions.FUNCTIONS.get(target)
    if rule is None:
        return None
    return _of_rows(rule) if target in _OF_ROWS else _entrywise(rule)
