"""Functions and methods of tensors that a checkpoint may name; nothing else is ever looked up."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.nn
import torch_geometric.utils
from torch import Tensor
from torch.nn import functional

from bitgnn.inference.steps.calls import results

__all__ = ["ATTRIBUTES", "FUNCTIONS", "METHODS"]

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
