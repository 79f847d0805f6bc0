"""Functions that calls of a program may name: of torch.ops.bitgnn, of torch.ops.aten, of this file.

Those of this file, ``"float::..."``, need the shape of their operand or several operators.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitImages
from bitgnn.nn.torch_layers import NodeStandardize
from bitgnn.quantize import sgn
from bitgnn.quantize.images import grey, local_binary_patterns

OWN: dict[str, Callable[..., Any]] = {
    "sign": sgn,
    "standardize": NodeStandardize(),
    "grey": grey,
    "local_binary_patterns": local_binary_patterns,
}
"""The functions of this package by name."""
OVER_GRAPHS: dict[str, Callable[..., Any]] = {}
"""Functions ``"graph::..."`` that rewrites name, and no file."""
ALLOWED = {
    "aten": (
        "add.Scalar", "add.Tensor", "argmax", "avg_pool2d", "batch_norm", "bitwise_and.Tensor",
        "bitwise_xor.Tensor", "cat", "constant_pad_nd", "contiguous", "conv2d", "conv2d.padding",
        "elu", "hardtanh", "leaky_relu", "linear", "log_softmax.int", "max_pool2d", "maximum",
        "mean.dim", "mul.Scalar", "mul.Tensor", "permute", "relu", "sigmoid", "silu",
        "slice.Tensor", "softmax.int", "tanh", "to.dtype", "unsqueeze", "view",
    ),
    "bitgnn": (
        "add_bbb", "add_bbf", "add_ffb", "bits_linear", "bmm_add", "bmm_add_iib", "bmm_bbb",
        "bmm_bbf", "bmm_iib", "bmm_iif", "bmm_tbb", "bspmm_bbb", "bspmm_bbf", "bspmm_bfb",
        "bspmm_bff", "bspmm_fbb", "bspmm_fbf", "bspmm_ffb", "bspmm_fff", "bspmm_tbb", "bspmm_tbf",
        "concat_bbb", "conv_add", "conv_bbb", "conv_bbf", "conv_fbb", "conv_fbf", "gat_bits",
        "gatv2_bits", "linear_ternary", "pack", "pack_images", "pack_int8", "pack_patches",
        "pack_scaled", "pack_standardized",
        "pack_ternary", "pool_bits", "transformer_bits", "unpack",
    ),
    "float": OWN,
}  # fmt: skip
"""Operators that a file may name; others take the place of several of them when they are bound."""


def own(function: Callable[..., Any]) -> Callable[..., Any]:
    """Enter a function among those that calls may name."""
    OWN[function.__name__] = function
    return function


@functools.cache
def overload(operator: str) -> Callable[..., Any]:
    """The function behind a name such as ``"bitgnn::pack"`` or ``"aten::mul.Scalar"``."""
    namespace, _, name = operator.partition("::")
    if namespace in ("float", "graph"):
        return OWN[name] if namespace == "float" else OVER_GRAPHS[name]
    name, _, version = name.partition(".")
    found: Callable[..., Any] = getattr(
        getattr(getattr(torch.ops, namespace), name), version or "default"
    )
    return found


@functools.cache
def argument_names(operator: str) -> tuple[str, ...]:
    """Names of an operator's arguments in their order."""
    function = overload(operator)
    if hasattr(function, "_schema"):
        return tuple(argument.name for argument in function._schema.arguments)
    return tuple(inspect.signature(function).parameters)


def may_be_named(operator: str) -> bool:
    """True if a file may name an operator."""
    namespace, _, name = operator.partition("::")
    return name in ALLOWED.get(namespace, ())


@own
def gelu(x: Tensor, approximate: str) -> Tensor:
    """The activation of this name."""
    return functional.gelu(x, approximate=approximate)


@own
def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """The norm of each row."""
    return functional.layer_norm(x, (x.size(-1),), weight, bias, eps)


@own
def normalize(x: Tensor) -> Tensor:
    """Rows of length 1."""
    return functional.normalize(x, p=2.0, dim=-1)


def _by_channel(x: Tensor, vector: Tensor) -> Tensor:
    return vector if x.dim() == 2 else vector.view(-1, 1, 1)


@own
def gain(x: Tensor, gain: Tensor) -> Tensor:
    """Features of rows, or channels of images, each times a number of its own."""
    return torch.mul(x, _by_channel(x, gain))


@own
def divisor(x: Tensor, divisor: Tensor) -> Tensor:
    """Features of rows, or channels of images, each divided by a number of its own."""
    return torch.div(x, _by_channel(x, divisor))


@own
def bias(x: Tensor, bias: Tensor) -> Tensor:
    """Features of rows, or channels of images, each plus a number of its own."""
    return torch.add(x, _by_channel(x, bias))


@own
def adaptive_avg_pool(x: Tensor, output: Any) -> Tensor:
    """Means of so many windows; None keeps a side."""
    return functional.adaptive_avg_pool2d(x, output)


@own
def shortcut(x: Tensor, stride: Sequence[int], out: int) -> Tensor:
    """Every so many pixels of ``[N, C, H, W]``, with zero channels appended."""
    down, right = stride
    kept = x[:, :, ::down, ::right]
    return functional.pad(kept, (0, 0, 0, 0, 0, out - x.size(1)))


@own
def flatten(x: Tensor, size: int | None) -> Tensor:
    """Images as rows of ``size`` features, where that is known."""
    rows = x.flatten(1)
    if size is not None and rows.size(1) != size:
        raise ValueError(f"the layer behind it takes {size} features, gets {rows.size(1)}")
    return rows


@own
def flatten_bits(words: Tensor, channels: int, pixels: int) -> Tensor:
    """Rows of all words of packed images."""
    found = words.size(1) * words.size(2)
    if found != pixels:
        raise ValueError(
            f"the layer behind it takes {pixels * channels} features, gets {found * channels}"
        )
    return words.flatten(1)


@own
def channels_first(sums: Tensor) -> Tensor:
    """Integers ``[N, H, W, C]`` as float images."""
    return sums.float().permute(0, 3, 1, 2)


@own
def unpack_images(words: Tensor, size: int) -> Tensor:
    """Signs ``[N, size, H, W]`` of packed images."""
    return BitImages._trusted(words, size).to_float()


@own
def readable(x: Tensor, step: float) -> Tensor:
    """Images, or rows as images of one pixel, in a format that products of fixed point read."""
    if x.dim() == 2:
        x = x.contiguous()[:, :, None, None]
    elif not x.is_contiguous() and not x.is_contiguous(memory_format=torch.channels_last):
        x = x.contiguous()
    # The operators take bytes as multiples of 1; of another step they are floats.
    return x.float() if x.dtype == torch.uint8 and step != 1 else x
