"""Calls that a checkpoint may hold: functions, methods and modules by name from lists, no code."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch_geometric.nn
import torch_geometric.utils
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from bitgnn.inference.steps.calls import FloatCall, Input, Method, results
from bitgnn.inference.steps.known_modules import Unsavable, describe_module, read_module

__all__ = [
    "ATTRIBUTES", "CALLS", "FUNCTIONS", "METHODS", "Unsavable", "describe_call", "read_call",
    "read_calls", "unsaved",
]  # fmt: skip

_TENSOR = (
    "abs", "acos", "add", "addmm", "all", "amax", "amin", "any", "arange", "argmax", "argmin",
    "argsort", "asin", "atan", "atan2", "bmm", "cat", "ceil", "celu", "chunk", "clamp", "clamp_max",
    "clamp_min", "clip", "concat", "cos", "cosh", "cummax", "cumprod", "cumsum", "deg2rad", "diff",
    "div", "dot", "einsum", "eq", "erf", "erfc", "exp", "expm1", "eye", "flatten", "flip", "floor",
    "floor_divide", "fmod", "full", "full_like", "gather", "ge", "gt", "heaviside", "hypot",
    "index_select", "inner", "isfinite", "isinf", "isnan", "le", "lerp", "linspace", "log", "log10",
    "log1p", "log2", "log_softmax", "logaddexp", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logsumexp", "lt", "masked_fill", "matmul", "max", "maximum", "mean", "median",
    "min", "minimum", "mm", "movedim", "mul", "multiply", "mv", "nan_to_num", "ne", "neg", "norm",
    "ones", "ones_like", "outer", "permute", "pow", "prelu", "prod", "reciprocal", "relu",
    "remainder", "repeat_interleave", "reshape", "roll", "round", "rsqrt", "scatter", "scatter_add",
    "selu", "sigmoid", "sign", "sin", "sinh", "softmax", "sort", "split", "sqrt", "square",
    "squeeze", "stack", "std", "sub", "subtract", "sum", "swapaxes", "t", "take_along_dim", "tan",
    "tanh", "tile", "topk", "transpose", "tril", "triu", "true_divide", "trunc", "unbind",
    "unsqueeze", "var", "where", "zeros", "zeros_like",
)  # fmt: skip
_OF_TENSORS = (
    *_TENSOR, "bool", "clone", "contiguous", "cpu", "detach", "dim", "double", "expand",
    "expand_as", "float", "half", "int", "long", "new_full", "new_ones", "new_zeros", "numel",
    "repeat", "size", "to", "type_as", "view", "view_as", "index_add", "masked_fill_", "add_",
    "mul_", "div_", "sub_", "clamp_", "relu_", "sigmoid_", "tanh_", "pow_", "square_", "exp_",
    "unflatten", "item",
)  # fmt: skip
_FUNCTIONAL = (
    "celu", "cosine_similarity", "dropout", "elu", "gelu", "glu", "group_norm", "hardshrink",
    "hardsigmoid", "hardswish", "hardtanh", "layer_norm", "leaky_relu", "linear", "log_softmax",
    "logsigmoid", "mish", "normalize", "one_hot", "pad", "pairwise_distance", "prelu", "relu",
    "relu6", "rms_norm", "rrelu", "selu", "sigmoid", "silu", "softmax", "softmin", "softplus",
    "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "embedding", "instance_norm",
    "batch_norm",
)  # fmt: skip
_OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "neg", "abs", "eq", "ne",
    "lt", "le", "gt", "ge", "and_", "or_", "xor", "invert", "iadd", "isub", "imul", "itruediv",
    "getitem",
)  # fmt: skip
_PYG = ("global_add_pool", "global_mean_pool", "global_max_pool")
_UTILS = ("scatter", "softmax", "degree", "to_dense_batch", "segment", "one_hot", "cumsum")
ATTRIBUTES = ("shape", "dtype", "device", "ndim", "T", "mT", "values", "indices")
"""What ``getattr`` may read."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "results": results,
    "builtins.getattr": builtins.getattr,
    **{
        f"{package}.{name}": getattr(owner, name)
        for package, owner, names in (
            ("torch", torch, _TENSOR),
            ("torch.nn.functional", functional, _FUNCTIONAL),
            ("operator", operator, _OPERATORS),
            ("torch_geometric.nn", torch_geometric.nn, _PYG),
            ("torch_geometric.utils", torch_geometric.utils, _UTILS),
        )
        for name in names
        if hasattr(owner, name)
    },
}
"""All functions by their names."""

METHODS = frozenset(name for name in _OF_TENSORS if hasattr(Tensor, name))
"""All methods of tensors."""


CALLS = "calls."
"""How the tensors of calls begin in the state of a model."""

_NAMES: dict[Any, str] = {function: name for name, function in reversed(FUNCTIONS.items())}
_DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


def unsaved(call: FloatCall) -> str:
    """What to add to a report on a call that no checkpoint can hold."""
    try:
        describe_call(call)
    except Unsavable as reason:
        return f"; save() cannot hold it, {reason}"
    return ""


def describe_call(call: FloatCall) -> dict[str, Any]:
    """A call without its tensors, as plain values.

    Raises:
        Unsavable: its function, module or an argument has no name that a checkpoint knows.
    """
    leaves = [
        {"constant": number} if f"constant_{number}" in call._buffers else _encoded(leaf)
        for number, leaf in enumerate(call.leaves)
    ]
    args, kwargs = pytree.tree_unflatten([_Encoded(leaf) for leaf in leaves], call.structure)
    found = {
        "name": call.name,
        "function": _describe_function(call.function),
        "args": _described(args),
        "kwargs": _described(kwargs),
        "size": call.size,
    }
    _check_attribute(found["function"], getattr(args[1], "value", None) if args[1:] else None)
    return found


def read_call(description: Any, tensors: Mapping[str, Tensor]) -> FloatCall:
    """The inverse of :func:`describe_call`.

    Raises:
        ValueError: an entry is missing or wrong, or names what is not known.
    """
    names = {"name", "function", "args", "kwargs", "size"}
    if not isinstance(description, Mapping) or description.keys() != names:
        raise ValueError(f"a call must have the entries {sorted(names)}, got {description}")
    function = _read_function(description["function"], tensors)
    args = _read(description["args"], tensors)
    kwargs = _read(description["kwargs"], tensors)
    if not isinstance(args, tuple) or not isinstance(kwargs, dict):
        raise ValueError("the arguments of a call are wrong")
    _check_attribute(description["function"], args[1] if len(args) > 1 else None)
    call = FloatCall(str(description["name"]), function, args, kwargs, description["size"])
    call.load_state_dict(dict(tensors), assign=True)
    return call.requires_grad_(False)


def read_calls(descriptions: list[Any], tensors: Mapping[str, Tensor]) -> list[FloatCall]:
    """The calls of a model, from their descriptions and its state.

    Raises:
        ValueError: as :func:`read_call`, or a tensor is missing or left over.
    """
    found = []
    for number, description in enumerate(descriptions):
        prefix = f"{CALLS}{number}."
        own = {
            name.removeprefix(prefix): tensor
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }
        try:
            found.append(read_call(description, own))
        except RuntimeError as error:  # a tensor that does not fit
            raise ValueError(str(error)) from error
    return found


class _Encoded:
    """A leaf that is plain already; opaque to pytrees."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _encoded(leaf: Any) -> Any:
    if isinstance(leaf, Input):
        return {"input": leaf.place}
    if isinstance(leaf, slice):
        return {"slice": [_encoded(part) for part in (leaf.start, leaf.stop, leaf.step)]}
    if isinstance(leaf, torch.dtype):
        return {"dtype": str(leaf)}
    if leaf is Ellipsis:
        return {"ellipsis": True}
    if leaf is None or isinstance(leaf, bool | int | float | str):
        return leaf
    raise Unsavable(f"a {type(leaf).__name__} is no plain value")


def _described(value: Any) -> Any:
    if isinstance(value, _Encoded):
        return value.value
    if isinstance(value, tuple):
        return {"tuple": [_described(item) for item in value]}
    if isinstance(value, list):
        return {"list": [_described(item) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _described(item) for key, item in value.items()}}
    raise Unsavable(f"a {type(value).__name__} is no plain value")


def _read(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, Mapping):
        if isinstance(value, list):
            raise ValueError("an argument of a call is wrong")
        return value
    ((kind, held),) = value.items()
    if kind == "tuple":
        return tuple(_read(item, tensors) for item in held)
    if kind == "list":
        return [_read(item, tensors) for item in held]
    if kind == "dict":
        return {key: _read(item, tensors) for key, item in held.items()}
    if kind == "slice":
        return slice(*(_read(part, tensors) for part in held))
    if kind == "constant":
        return tensors[f"constant_{held}"]
    if kind == "input" and isinstance(held, int | str):
        return Input(held)
    if kind == "dtype" and held in _DTYPES:
        return _DTYPES[held]
    if kind == "ellipsis":
        return Ellipsis
    raise ValueError(f"an argument of a call is wrong: {value}")


def _describe_function(function: Any) -> Any:
    if isinstance(function, nn.Module):
        return describe_module(function)
    if isinstance(function, Method):
        if function.__name__ not in METHODS:
            raise Unsavable(f"the method {function.__name__!r} has no name in checkpoints")
        return {"method": function.__name__}
    try:
        name = _NAMES.get(function)
    except TypeError:
        name = None
    if name is None:
        called = getattr(function, "__name__", type(function).__name__)
        raise Unsavable(f"{called!r} is a function of its own")
    return {"function": name}


def _read_function(description: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(description, Mapping):
        raise ValueError(f"a function must be named, got {description}")
    if "module" in description:
        return read_module(description, tensors)
    ((kind, name),) = description.items()
    if kind == "method" and name in METHODS:
        return Method(name)
    if kind == "function" and name in FUNCTIONS:
        return FUNCTIONS[name]
    raise ValueError(f"function {name!r} is unknown")


def _check_attribute(function: Any, name: Any) -> None:
    """``getattr`` reads properties of tensors, nothing else."""
    if function == {"function": "builtins.getattr"} and name not in ATTRIBUTES:
        raise Unsavable(f"the attribute {name!r} has no name in checkpoints")
