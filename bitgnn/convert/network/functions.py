"""Functions and methods in a forward as values: activations, sums, joins and normalisations."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.convert.network.activations import ACTIVATIONS
from bitgnn.convert.network.output import LAST_DIMENSIONS, RowMaximum, classes_of
from bitgnn.convert.network.values import IMAGES, Unsupported, Value
from bitgnn.quantize import binary_sign, sgn

__all__ = ["FUNCTIONS", "concatenated", "jumping_knowledge"]

POWER_OF_TWO_MANTISSA = 0.5


def jumping_knowledge(name: str, module: Any, values: Any) -> Value:
    """PyG's ``JumpingKnowledge`` of several layers' outputs.

    Raises:
        Unsupported: its mode has no form in frozen models.
    """
    if not isinstance(values, tuple | list) or not all(isinstance(v, Value) for v in values):
        raise Unsupported("it takes something else than a list of matrices")
    if module.mode == "cat":
        return concatenated(name, values, dim=-1)
    if module.mode != "max":
        raise Unsupported(f"mode {module.mode!r} has no form in frozen models")
    result = values[0]
    for value in values[1:]:
        result = Value("maximum", name, (result, value), result.size)
    return result


def concatenated(name: str, tensors: Any, dim: int = 0, axis: int | None = None) -> Value:
    """Features of matrices or channels of images side by side.

    Raises:
        Unsupported: something else is joined, or along another dimension.
    """
    are_values = isinstance(tensors, tuple | list) and all(isinstance(v, Value) for v in tensors)
    if not tensors or not are_values:
        raise Unsupported("only features or channels can be joined")
    dim, rank = dim if axis is None else axis, tensors[0].rank
    dims = (1,) if rank == IMAGES else LAST_DIMENSIONS
    if dim not in dims or any(value.rank != rank for value in tensors):
        raise Unsupported("only features or channels can be joined")
    sizes = [value.size for value in tensors]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    return Value("cat", name, tuple(tensors), total, rank=rank)


def _identity(name: str, x: Any, *rest: Any, **options: Any) -> Value:
    return _matrix(x)


def _matrix(x: Any) -> Value:
    if not isinstance(x, Value):
        raise Unsupported("it takes something else than a matrix")
    return x


_NO_MATTER = ("inplace", "training", "dtype", "_stacklevel")


def _dropout(
    name: str, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Value:
    if training:
        raise Unsupported("it drops in evaluation too")
    return _matrix(x)


def _clip(name: str, x: Any, low: Any = None, high: Any = None, **options: Any) -> Value:
    low, high = options.pop("min", low), options.pop("max", high)
    low, high = options.pop("min_val", low), options.pop("max_val", high)
    if set(options) - set(_NO_MATTER) or not all(isinstance(v, int | float) for v in (low, high)):
        raise Unsupported("only two numbers can be bounds")
    value = _matrix(x)
    bounds = {"low": float(low), "high": float(high)}
    return Value("function", name, (value,), value.size, "hardtanh", bounds)


def _softmax(function: str) -> Callable[..., Value]:
    def rule(name: str, x: Any, dim: int | None = None, **options: Any) -> Value:
        if dim not in LAST_DIMENSIONS or options.get("dtype") is not None:
            raise Unsupported("only features of a node can be normalised")
        value = _matrix(x)
        return Value("function", name, (value,), value.size, function)

    return rule


def _argmax(name: str, x: Any, dim: int | None = None, keepdim: bool = False) -> Value:
    if dim not in LAST_DIMENSIONS or keepdim:
        raise Unsupported("only the class of each node has a form in frozen models")
    return classes_of(name, _matrix(x))


def _max(name: str, x: Any, dim: Any = None, keepdim: bool = False) -> RowMaximum:
    if dim not in LAST_DIMENSIONS or keepdim:
        raise Unsupported("only the largest feature of each node has a form in frozen models")
    return RowMaximum.of(name, _matrix(x))


def _part(name: str, x: Any, part: Any) -> Any:
    """One of the two results of ``max``, by its place or name."""
    is_plain = isinstance(part, int | str) and part in (0, 1, -1, -2, *RowMaximum._fields)
    if not isinstance(x, RowMaximum) or not is_plain:
        raise Unsupported("frozen models know no such function")
    return x[part] if isinstance(part, int) else getattr(x, part)


def _normalize(name: str, x: Any, p: float = 2.0, dim: int = 1, **options: Any) -> Value:
    if p != 2 or dim not in LAST_DIMENSIONS or options:
        raise Unsupported("only the Euclidean norm of a node has a form in frozen models")
    value = _matrix(x)
    return Value("function", name, (value,), value.size, "normalize")


def _number(
    function: str, attribute: str, convert: Callable[[float], float]
) -> Callable[..., Value]:
    def of(name: str, x: Value, number: float) -> Value:
        attributes = {attribute: convert(float(number))}
        return Value("function", name, (x,), x.size, function, attributes)

    return of


_scaled = _number("scale", "factor", float)
_shifted = _number("shift", "term", float)


def _joined(
    kind: Any, with_number: Callable[..., Value] | None, with_vector: str | None
) -> Callable[..., Value]:
    """Rule for an operation on two matrices, on a matrix and a number, or and a vector."""

    def rule(name: str, a: Any, b: Any, **options: Any) -> Value:
        if options:
            raise Unsupported("its options have no form in frozen models")
        if isinstance(a, Value) and isinstance(b, Value):
            return Value(kind, name, (a, b), a.size if a.size is not None else b.size)
        x, other = (a, b) if isinstance(a, Value) else (b, a)
        x = _matrix(x)
        if isinstance(other, int | float) and with_number is not None:
            return with_number(name, x, other)
        if isinstance(other, Tensor) and other.dim() == 1 and with_vector is not None:
            size = other.size(0) if x.size is None else x.size
            if other.size(0) == size:
                tensors = {with_vector: other.detach().float().clone()}
                return Value("function", name, (x,), size, with_vector, {}, tensors)
        raise Unsupported("its operands have no form in frozen models")

    return rule


def _subtract(name: str, a: Any, b: Any, **options: Any) -> Value:
    if options or not isinstance(a, Value) or not isinstance(b, int | float):
        raise Unsupported("only a number can be subtracted")
    return _shifted(name, a, -b)


def _divide(name: str, a: Any, b: Any, **options: Any) -> Value:
    # x / c rounds otherwise than x * (1 / c) unless c is a power of two.
    if options or not isinstance(a, Value) or not isinstance(b, int | float):
        raise Unsupported("only a number can divide")
    if abs(math.frexp(b)[0]) != POWER_OF_TWO_MANTISSA:
        raise Unsupported("only a power of two can divide")
    return _scaled(name, a, 1 / b)


def _negate(name: str, a: Any) -> Value:
    return _scaled(name, _matrix(a), -1.0)


def _sign(name: str, x: Any, surrogate: str = "ste", window: float = 1.0) -> Value:
    value = _matrix(x)
    return Value("function", name, (value,), value.size, "sign")


_add = _joined("add", _shifted, "bias")
_mul = _joined("mul", _scaled, "gain")
_maximum = _joined("maximum", None, None)
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{target: activation for activation in ACTIVATIONS for target in activation.targets},
    binary_sign: _sign, sgn: _sign,
    torch.clamp: _clip, torch.clip: _clip, "clamp": _clip, "clip": _clip,
    functional.dropout: _dropout, "contiguous": _identity,
    functional.softmax: _softmax("softmax"), torch.softmax: _softmax("softmax"),
    "softmax": _softmax("softmax"),
    functional.log_softmax: _softmax("log_softmax"), torch.log_softmax: _softmax("log_softmax"),
    "log_softmax": _softmax("log_softmax"), functional.normalize: _normalize,
    torch.cat: concatenated, torch.concat: concatenated,
    operator.add: _add, operator.iadd: _add, torch.add: _add, "add": _add, "add_": _add,
    operator.mul: _mul, operator.imul: _mul, torch.mul: _mul, "mul": _mul,
    operator.sub: _subtract, torch.sub: _subtract, "sub": _subtract,
    operator.truediv: _divide, torch.div: _divide, "div": _divide,
    operator.neg: _negate, torch.neg: _negate, "neg": _negate,
    torch.maximum: _maximum, "maximum": _maximum,
    torch.argmax: _argmax, "argmax": _argmax, torch.max: _max, "max": _max,
    operator.getitem: _part, getattr: _part,
}  # fmt: skip
"""Rules of functions and of methods (by name): which value a call gives."""
