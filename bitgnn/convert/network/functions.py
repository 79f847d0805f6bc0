"""Rules for calls of functions, methods and modules: the value that each gives."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn.conv import hetero_conv
from torch_geometric.nn.norm import BatchNorm

from bitgnn.convert.network.values import (
    IMAGES,
    ROWS,
    Unsupported,
    Value,
    batch_norm,
    function_of,
    function_on,
    is_matrix,
    named,
    of_rank,
    with_size,
)
from bitgnn.inference.own_code.calls import FloatCall, Input
from bitgnn.nn import NodeStandardize
from bitgnn.quantize import binary_sign, sgn

Rule = Callable[..., Any]
"""Takes the name of the node or module and the arguments of the call."""

NORMALISATIONS = ("softmax", "log_softmax")
UNKNOWN = "frozen models know no such function"
_NO_MATRIX = "it takes something else than a matrix"
_OPTIONS = "its options have no form in frozen models"
_OPERANDS = "its operands have no form in frozen models"


class RowMaximum(NamedTuple):
    """Result of ``max(dim=-1)``: the largest feature of each node and its place."""

    values: Value
    indices: Value


def _is_last(dim: Any, *values: Any) -> bool:
    """True if a dimension is that of the features."""
    return dim == -1 or (dim == 1 and all(isinstance(v, Value) and is_matrix(v) for v in values))


def part_of(name: str, x: Any, part: Any) -> Any:
    """One of the two results of ``max``, by position or name."""
    is_plain = isinstance(part, int | str) and part in (0, 1, -1, -2, *RowMaximum._fields)
    if not isinstance(x, RowMaximum) or not is_plain:
        raise Unsupported(UNKNOWN)
    return x[part] if isinstance(part, int) else getattr(x, part)


def classes_of(name: str, value: Value) -> Value:
    """Index of the largest feature of each node.

    Softmax, its logarithm and a positive factor keep the order of the features and are left out;
    so features that only their rounding makes equal stay apart.
    """
    while value.kind == "function" and (
        value.name in NORMALISATIONS or (value.name == "scale" and value.attributes["factor"] > 0)
    ):
        (value,) = value.inputs
    return Value("classes", name, (value,))


def concatenated(name: str, tensors: Any, dim: int = 0, axis: int | None = None) -> Value:
    """Features of matrices or channels of images side by side."""
    are_values = isinstance(tensors, tuple | list) and all(isinstance(v, Value) for v in tensors)
    if not tensors or not are_values:
        raise Unsupported("only features or channels can be joined")
    dim, rank = dim if axis is None else axis, tensors[0].rank
    is_fitting = dim == 1 if rank == IMAGES else _is_last(dim, *tensors)
    if not is_fitting or any(value.rank != rank for value in tensors):
        raise Unsupported("only features or channels can be joined")
    sizes = [value.size for value in tensors]
    return Value("cat", name, tuple(tensors), None if None in sizes else sum(sizes), rank=rank)


def jumping_knowledge(name: str, values: Any, mode: str) -> Value:
    """PyG's ``JumpingKnowledge`` of several layers' outputs."""
    if not isinstance(values, tuple | list) or not all(isinstance(v, Value) for v in values):
        raise Unsupported("it takes something else than a list of matrices")
    if mode == "cat":
        return concatenated(name, values, dim=-1)
    if mode != "max":
        raise Unsupported(f"mode {mode!r} has no form in frozen models")
    result, *others = values
    for value in others:
        result = Value("maximum", name, (result, value), result.size)
    return result


def _matrix(x: Any) -> Value:
    if not isinstance(x, Value):
        raise Unsupported(_NO_MATRIX)
    return x


def _identity(name: str, x: Any, *rest: Any, **options: Any) -> Value:
    return _matrix(x)


def _dropout(
    name: str, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Value:
    if training:
        raise Unsupported("it drops in evaluation too")
    return _matrix(x)


def _clip(name: str, x: Any, min: Any = None, max: Any = None) -> Value:
    is_known = isinstance(x, Value) and is_matrix(x)  # which holds floats
    if not is_known or not all(isinstance(bound, int | float) for bound in (min, max)):
        raise Unsupported("only two numbers can be bounds")
    return function_on(_matrix(x), name, "hardtanh", low=float(min), high=float(max))


def _softmax(
    function: str, name: str, x: Any, dim: Any = None, *, dtype: Any = None, _stacklevel: int = 3
) -> Value:
    if not _is_last(dim, x) or dtype is not None:
        raise Unsupported("only features of a node can be normalised")
    return function_of(name, function, of_rank(x, ROWS))


def _argmax(name: str, x: Any, dim: int | None = None, keepdim: bool = False) -> Value:
    if not _is_last(dim, x) or keepdim:
        raise Unsupported("only the class of each node has a form in frozen models")
    return classes_of(name, of_rank(x, ROWS))


def _max(name: str, x: Any, dim: Any = None, keepdim: bool = False) -> RowMaximum:
    if not _is_last(dim, x) or keepdim:
        raise Unsupported("only the largest feature of each node has a form in frozen models")
    x = of_rank(x, ROWS)
    largest = FloatCall(name, torch.amax, (Input(0), -1), {}, None)
    return RowMaximum(Value("call", name, (x,), call=largest), classes_of(name, x))


def _normalize(name: str, x: Any, p: float = 2.0, dim: int = 1, **options: Any) -> Value:
    if p != 2 or not _is_last(dim, x) or options:
        raise Unsupported("only the Euclidean norm of a node has a form in frozen models")
    return function_of(name, "normalize", of_rank(x, ROWS))


def _layer_norm(name: str, value: Value, module: nn.LayerNorm) -> Value:
    if type(module) is not nn.LayerNorm or len(module.normalized_shape) != 1:
        raise Unsupported(UNKNOWN)
    if value.rank != ROWS:
        raise Unsupported(f"{UNKNOWN} of images")
    value = with_size(value, module.normalized_shape[0], name)
    tensors = named(weight=module.weight, bias=module.bias)
    return function_of(name, "layer_norm", value, tensors, eps=float(module.eps))


def _batch_norm(rank: int, name: str, value: Value, module: Any) -> Value:
    return batch_norm(name, module, of_rank(value, rank))


def _sign(
    name: str, x: Any, surrogate: str = "ste", window: float = 1.0, total: Any = None
) -> Value:
    if total is not None:
        raise Unsupported(_OPTIONS)
    return function_on(_matrix(x), name, "sign")


def _scaled(name: str, x: Any, number: float) -> Value:
    return function_on(_matrix(x), name, "scale", factor=number)  # integers may be places


def _shifted(name: str, x: Value, number: float) -> Value:
    return function_on(x, name, "shift", term=number)


def grouped(name: str, values: Any, aggr: str | None) -> Value:
    """Results of several relations as one, as PyG's ``HeteroConv`` joins them."""
    if not isinstance(values, list) or not all(isinstance(v, Value) for v in values):
        raise Unsupported("it takes something else than a list of matrices")
    joined = {"sum": _add, "mean": _add, "max": _maximum}.get(str(aggr))
    if aggr == "cat":
        return concatenated(name, values, dim=-1)
    if joined is None:
        raise Unsupported(f"aggr={aggr!r} has no form in frozen models")
    result, *others = values
    for value in others:
        result = joined(name, result, value)
    return _divided(name, result, len(values)) if aggr == "mean" else result


def _divided(name: str, x: Value, number: float) -> Value:
    # x / c rounds otherwise than x * (1 / c) unless c is a power of two.
    if abs(math.frexp(number)[0]) != 0.5:
        if x.size is None:
            raise Unsupported("only a power of two can divide where no layer tells the width")
        vector = torch.full((x.size,), float(number), dtype=torch.float32)
        return function_of(name, "divisor", x, {"divisor": vector})
    return _scaled(name, x, 1.0 / number)


def _with_vector(function: str, name: str, x: Value, constant: Tensor) -> Value:
    """A value and a constant of each feature, or of each channel, ``[C, 1, 1]`` behind images."""
    if not is_matrix(x):
        raise Unsupported(_OPERANDS)
    vector = constant.detach().float().flatten()
    size, shape = vector.numel(), list(constant.shape)
    of_images = shape[-3:] == [size, 1, 1] and len(shape) <= IMAGES
    of_rows = 1 <= len(shape) <= ROWS and shape[-1] == size
    if not (of_images or of_rows) or (size != x.size and (size == 1 or x.size is not None)):
        raise Unsupported(_OPERANDS)
    x = with_size(of_rank(x, IMAGES if of_images else ROWS), size, name)
    return function_of(name, function, x, {function: vector.clone()})


def _joined(
    kind: str,
    with_number: Rule | None = None,
    with_vector: Rule | None = None,
    commutes: bool = True,
) -> Rule:
    """Rule for an operation on two values, on a value and a number, or and a vector."""

    def rule(name: str, a: Any, b: Any, **options: Any) -> Value:
        if options:
            raise Unsupported(_OPTIONS)
        if isinstance(a, Value) and isinstance(b, Value) and kind:
            for value, other in ((a, b), (b, a)):
                if value.rank is None and other.rank is not None:
                    of_rank(value, other.rank)
            if a.size != b.size and None not in (a.size, b.size):
                raise Unsupported("its operands have different numbers of features")
            if a.rank != b.rank:
                raise Unsupported("its operands have different numbers of dimensions")
            return Value(kind, name, (a, b), a.size if a.size is not None else b.size, rank=a.rank)
        x, other = (a, b) if isinstance(a, Value) or not commutes else (b, a)
        x = _matrix(x)
        if type(other) in (int, float) and with_number is not None:
            return with_number(name, x, other)
        if isinstance(other, Tensor) and with_vector is not None:
            return with_vector(name, x, other)
        raise Unsupported(_OPERANDS)

    return rule


def _activation(function: str, *options: tuple[str, str, Any], **fixed: float) -> Rule:
    """Rule of a function of every entry, a name that frozen models know.

    ``options`` are attributes of it, each with the argument of torch's function and its default.
    """
    arguments = [argument for _, argument, _ in options]

    def rule(name: str, x: Any, *rest: Any, **given: Any) -> Value:
        x, places = _matrix(x), [*arguments, "inplace"]
        given = {**dict(zip(places, rest, strict=False)), **given}
        if len(rest) > len(places) or given.keys() - set(places):
            raise Unsupported(_OPTIONS)
        attributes: dict[str, Any] = dict(fixed)
        for attribute, argument, default in options:
            value = given.get(argument, default)
            if not isinstance(value, str if isinstance(default, str) else int | float):
                raise Unsupported(_OPTIONS)
            attributes[attribute] = type(default)(value)
        return function_on(x, name, function, **attributes)

    return rule


_hardtanh = _activation("hardtanh", ("low", "min_val", -1.0), ("high", "max_val", 1.0))
_leaky_relu = _activation("leaky_relu", ("slope", "negative_slope", 0.01))
_gelu = _activation("gelu", ("approximate", "approximate", "none"))
ACTIVATIONS: tuple[tuple[Any, Rule, str, tuple[Any, ...]], ...] = (
    (nn.ReLU, _activation("relu"), "",
     (torch.relu, torch.relu_, functional.relu, "relu", "relu_")),
    (nn.ReLU6, _activation("hardtanh", low=0.0, high=6.0), "", (functional.relu6,)),
    (nn.Hardtanh, _hardtanh, "min_val max_val", (functional.hardtanh,)),
    (nn.Tanh, _activation("tanh"), "", (torch.tanh, functional.tanh, "tanh")),
    (nn.Sigmoid, _activation("sigmoid"), "", (torch.sigmoid, functional.sigmoid, "sigmoid")),
    (nn.ELU, _activation("elu", ("alpha", "alpha", 1.0)), "alpha", (functional.elu,)),
    (nn.LeakyReLU, _leaky_relu, "negative_slope", (functional.leaky_relu,)),
    (nn.GELU, _gelu, "approximate", (functional.gelu,)),
    (nn.SiLU, _activation("silu"), "", (functional.silu,)),
)  # fmt: skip
"""Module, rule, the module's attributes that the rule takes, and torch's functions and methods.

A new activation has a row here, and its arithmetic among the functions of frozen models.
"""

ITSELF = "the module itself"
"""In a row of modules, in place of the attributes that the rule takes."""

MODULES: tuple[tuple[Any, Rule, str], ...] = (
    ((nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout), _identity, ""),
    (BatchNorm, lambda name, value, norm: batch_norm(name, norm.module, value), ITSELF),
    (nn.BatchNorm2d, partial(_batch_norm, IMAGES), ITSELF),
    (nn.BatchNorm1d, partial(_batch_norm, ROWS), ITSELF),
    (NodeStandardize, lambda name, value: function_of(name, "standardize", value), ""),
    (nn.LayerNorm, _layer_norm, ITSELF),
    (nn.Softmax, partial(_softmax, "softmax"), "dim"),
    (nn.LogSoftmax, partial(_softmax, "log_softmax"), "dim"),
    (torch_geometric.nn.JumpingKnowledge, jumping_knowledge, "mode"),
)
"""Modules of one value, their rule, and the attributes that it takes behind name and value."""

_add = _joined("add", _shifted, partial(_with_vector, "bias"))
_mul = _joined("mul", _scaled, partial(_with_vector, "gain"))
_maximum = _joined("maximum")
_less = _joined(
    "",
    lambda name, x, number: _shifted(name, x, -number),
    lambda name, x, constant: _with_vector("bias", name, x, -constant),
    commutes=False,
)


def _subtract(name: str, a: Any, b: Any, **options: Any) -> Value:
    if isinstance(a, Value) and isinstance(b, Value) and is_matrix(a) and is_matrix(b):
        found: Value = _add(name, a, _scaled(name, b, -1.0), **options)
        return found
    less: Value = _less(name, a, b, **options)
    return less


_divide = _joined("", _divided, partial(_with_vector, "divisor"), commutes=False)
_negate = partial(_scaled, number=-1)
FUNCTIONS: dict[Any, Rule] = {
    **{target: rule for _, rule, _, targets in ACTIVATIONS for target in targets},
    **{
        target: partial(_softmax, name)
        for name in NORMALISATIONS
        for target in (getattr(functional, name), getattr(torch, name), name)
    },
    binary_sign: _sign, sgn: _sign, functional.dropout: _dropout, "contiguous": _identity,
    torch.clamp: _clip, torch.clip: _clip, "clamp": _clip, "clip": _clip,
    functional.normalize: _normalize, torch.cat: concatenated, torch.concat: concatenated,
    operator.add: _add, operator.iadd: _add, torch.add: _add, "add": _add, "add_": _add,
    operator.mul: _mul, operator.imul: _mul, torch.mul: _mul, "mul": _mul,
    operator.sub: _subtract, torch.sub: _subtract, "sub": _subtract,
    operator.truediv: _divide, torch.div: _divide, "div": _divide,
    operator.neg: _negate, torch.neg: _negate, "neg": _negate,
    torch.maximum: _maximum, "maximum": _maximum,
    torch.argmax: _argmax, "argmax": _argmax, torch.max: _max, "max": _max,
    operator.getitem: part_of, getattr: part_of, hetero_conv.group: grouped,
}  # fmt: skip
"""Rules of functions, and of methods by name."""


def lower_module(name: str, module: nn.Module, value: Any, known: Any) -> Value:
    """A module of one value in evaluation, by rows like those of :data:`MODULES`."""
    # A subclass of an activation may compute anything.
    activations = [row[:3] for row in ACTIVATIONS if type(module) is row[0]]
    for kinds, rule, options in (*activations, *known):
        if isinstance(module, kinds):
            given = [module] if options == ITSELF else [getattr(module, o) for o in options.split()]
            result: Value = rule(name, value, *given)
            return result
    raise Unsupported(UNKNOWN)
