"""Functions and methods in a forward as values: activations, sums, joins and normalisations."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.convert.network.modules import ACTIVATIONS
from bitgnn.convert.network.output import LAST_DIMENSIONS, RowMaximum, classes_of, part_of
from bitgnn.convert.network.values import (
    IMAGES,
    ROWS,
    Unsupported,
    Value,
    function_of,
    function_on,
    of_rank,
    with_size,
)
from bitgnn.quantize import binary_sign, sgn

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


def _matrix(x: Any) -> Value:
    if not isinstance(x, Value):
        raise Unsupported("it takes something else than a matrix")
    return x


def _identity(name: str, x: Any, *rest: Any, **options: Any) -> Value:
    return _matrix(x)


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
    return function_on(_matrix(x), name, "hardtanh", low=float(low), high=float(high))


def _softmax(function: str) -> Callable[..., Value]:
    def rule(name: str, x: Any, dim: int | None = None, **options: Any) -> Value:
        if dim not in LAST_DIMENSIONS or options.get("dtype") is not None:
            raise Unsupported("only features of a node can be normalised")
        return function_of(name, function, of_rank(x, ROWS, name))

    return rule


def _argmax(name: str, x: Any, dim: int | None = None, keepdim: bool = False) -> Value:
    if dim not in LAST_DIMENSIONS or keepdim:
        raise Unsupported("only the class of each node has a form in frozen models")
    return classes_of(name, of_rank(x, ROWS, name))


def _max(name: str, x: Any, dim: Any = None, keepdim: bool = False) -> RowMaximum:
    if dim not in LAST_DIMENSIONS or keepdim:
        raise Unsupported("only the largest feature of each node has a form in frozen models")
    return RowMaximum.of(name, of_rank(x, ROWS, name))


def _normalize(name: str, x: Any, p: float = 2.0, dim: int = 1, **options: Any) -> Value:
    if p != 2 or dim not in LAST_DIMENSIONS or options:
        raise Unsupported("only the Euclidean norm of a node has a form in frozen models")
    return function_of(name, "normalize", of_rank(x, ROWS, name))


def _scaled(name: str, x: Value, number: float) -> Value:
    return function_on(x, name, "scale", factor=float(number))


def _shifted(name: str, x: Value, number: float) -> Value:
    return function_on(x, name, "shift", term=float(number))


def _divided(name: str, x: Value, number: float) -> Value:
    # x / c rounds otherwise than x * (1 / c) unless c is a power of two.
    if abs(math.frexp(number)[0]) != POWER_OF_TWO_MANTISSA:
        raise Unsupported("only a power of two can divide")
    return _scaled(name, x, 1 / number)


def _with_vector(function: str, name: str, x: Value, constant: Tensor) -> Value:
    """A value and a constant of each feature, or of each channel, ``[C, 1, 1]`` behind images."""
    vector = constant.detach().float().flatten()
    size, shape = vector.numel(), list(constant.shape)
    of_images = shape[-3:] == [size, 1, 1] and len(shape) <= IMAGES
    of_rows = 1 <= len(shape) <= ROWS and shape[-1] == size
    if not (of_images or of_rows) or (size != x.size and (size == 1 or x.size is not None)):
        raise Unsupported("its operands have no form in frozen models")
    x = with_size(of_rank(x, IMAGES if of_images else ROWS, name), size, name)
    tensors = {function: vector.clone()}
    return Value("function", name, (x,), size, function, {}, tensors, rank=x.rank)


def _joined(
    kind: Any,
    with_number: Callable[..., Value] | None = None,
    with_vector: Callable[..., Value] | None = None,
    commutes: bool = True,
) -> Callable[..., Value]:
    """Rule for an operation on two values, on a value and a number, or and a vector."""

    def rule(name: str, a: Any, b: Any, **options: Any) -> Value:
        if options:
            raise Unsupported("its options have no form in frozen models")
        if isinstance(a, Value) and isinstance(b, Value) and kind is not None:
            _settle_ranks(a, b)
            return Value(kind, name, (a, b), a.size if a.size is not None else b.size, rank=a.rank)
        x, other = (a, b) if isinstance(a, Value) or not commutes else (b, a)
        x = _matrix(x)
        if isinstance(other, int | float) and with_number is not None:
            return with_number(name, x, other)
        if isinstance(other, Tensor) and with_vector is not None:
            return with_vector(name, x, other)
        raise Unsupported("its operands have no form in frozen models")

    return rule


def _settle_ranks(a: Value, b: Value) -> None:
    for value, other in ((a, b), (b, a)):
        if value.rank is None and other.rank is not None:
            of_rank(value, other.rank, "")
    if a.rank != b.rank:
        raise Unsupported("its operands have different numbers of dimensions")


def _negate(name: str, a: Any) -> Value:
    return _scaled(name, _matrix(a), -1.0)


def _sign(name: str, x: Any, surrogate: str = "ste", window: float = 1.0) -> Value:
    return function_on(_matrix(x), name, "sign")


_add = _joined("add", _shifted, partial(_with_vector, "bias"))
_mul = _joined("mul", _scaled, partial(_with_vector, "gain"))
_maximum = _joined("maximum")
_subtract = _joined(
    None,
    lambda name, x, number: _shifted(name, x, -number),
    lambda name, x, constant: _with_vector("bias", name, x, -constant),
    commutes=False,
)
_divide = _joined(None, _divided, partial(_with_vector, "divisor"), commutes=False)
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
    operator.getitem: part_of, getattr: part_of,
}  # fmt: skip
"""Rules of functions and of methods (by name): which value a call gives."""
