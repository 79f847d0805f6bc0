"""Modules and functions on images, and on their shapes, as values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.convert.network.output import part_of
from bitgnn.convert.network.values import (
    IMAGES,
    ROWS,
    Unsupported,
    Value,
    named,
    of_rank,
    with_size,
)
from bitgnn.nn import BinaryConv2d, BinaryLinear
from bitgnn.quantize import canonical_row_scale
from bitgnn.quantize.images import COLOURS, grey, local_binary_patterns

BINARY = (BinaryConv2d, BinaryLinear)
_PIXELS = ({2, 3}, {-2, -1}, {2, -1}, {-2, 3})


def _pair(value: Any) -> list[int]:
    """A number for both axes in full.

    Raises:
        Unsupported: it is computed by the forward.
    """
    both = list(value) if isinstance(value, tuple | list) else [value, value]
    both = both * 2 if len(both) == 1 else both
    if len(both) != 2 or not all(type(v) is int for v in both):
        raise Unsupported("its numbers are no constants")
    return both


def _flattened(layer: str, value: Any) -> Value:
    """Images as rows ``[N, C * H * W]``; rows as they are."""
    if isinstance(value, Value) and value.rank == ROWS:
        return value
    return Value("flatten", layer, (of_rank(value, IMAGES, layer),), rank=ROWS)


def flatten(name: str, x: Any, start_dim: int = 0, end_dim: int = -1) -> Value:
    """All of an image as a row."""
    if start_dim != 1 or end_dim not in (-1, IMAGES - 1):
        raise Unsupported("only all of an image can be flattened")
    return _flattened(name, x)


def max_pool(
    layer: str,
    value: Any,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Value:
    """Max pooling, with the arguments of torch's function."""
    if return_indices:
        raise Unsupported("it returns indices")
    value = of_rank(value, IMAGES, layer)
    attributes = {
        "kernel": _pair(kernel),
        "stride": _pair(kernel if stride is None or stride == [] else stride),
        "padding": _pair(padding),
        "dilation": _pair(dilation),
        "ceil_mode": bool(ceil_mode),
    }
    return Value("max_pool", layer, (value,), value.size, "", attributes, rank=IMAGES)


def avg_pool(
    layer: str,
    value: Any,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """Average pooling, with the arguments of torch's function."""
    value = of_rank(value, IMAGES, layer)
    attributes = {
        "kernel": _pair(kernel),
        "stride": _pair(kernel if stride is None or stride == [] else stride),
        "padding": _pair(padding),
        "ceil_mode": bool(ceil_mode),
        "count_include_pad": bool(count_include_pad),
        "divisor": divisor_override,
    }
    return Value("avg_pool", layer, (value,), value.size, "", attributes, rank=IMAGES)


def adaptive_avg_pool(layer: str, value: Any, output_size: Any) -> Value:
    """Average pooling to a size; None keeps that of an axis."""
    value = of_rank(value, IMAGES, layer)
    both = list(output_size) if isinstance(output_size, tuple | list) else [output_size] * 2
    if len(both) != 2 or not all(v is None or type(v) is int for v in both):
        raise Unsupported("its numbers are no constants")
    attributes = {"output": both}
    return Value("adaptive_avg_pool", layer, (value,), value.size, "", attributes, rank=IMAGES)


def _numbers(layer: nn.Conv2d) -> dict[str, Any]:
    """Strides, padding of the four sides, dilation and groups as steps hold them."""
    kernel, dilation = layer.kernel_size, layer.dilation
    padding: Any = layer.padding
    if padding == "valid":
        sides = [0, 0, 0, 0]
    elif padding == "same":
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        sides = [side for t in total for side in (t // 2, t - t // 2)]
    else:
        sides = [padding[0], padding[0], padding[1], padding[1]]
    return {
        "stride": list(layer.stride),
        "padding": sides,
        "dilation": list(dilation),
        "groups": layer.groups,
    }


def _product(name: str, layer: Any, value: Value, rank: int, numbers: dict[str, Any]) -> Value:
    """A binary convolution or linear map: of signs, or of fixed point where it is a first layer."""
    weight: Tensor = layer.weight.detach()
    scale = canonical_row_scale(weight.flatten(1)).float() if layer.scale else None
    tensors = {"weight": weight.float().contiguous().clone()}
    tensors |= named(scale=scale, bias=layer.bias)
    if layer.input_step is not None and numbers.get("groups", 1) != 1:
        raise Unsupported("a first layer of several groups has no form in frozen models")
    attributes = {**numbers, "input_step": layer.input_step}
    value = with_size(value, weight.size(1) * numbers.get("groups", 1), name)
    return Value("product", name, (value,), weight.size(0), "", attributes, tensors, rank=rank)


def convolution(name: str, layer: nn.Conv2d, value: Value) -> Value:
    """A convolution, of signs or fixed point where it is a binary one."""
    if layer.padding_mode != "zeros":
        raise Unsupported(f"padding_mode {layer.padding_mode!r} has no form in frozen models")
    value = of_rank(value, IMAGES, name)
    if isinstance(layer, BinaryConv2d):
        return _product(name, layer, value, IMAGES, _numbers(layer))
    if type(layer) is not nn.Conv2d:
        raise Unsupported("its class is not known")
    padding: Any = layer.padding
    attributes = {
        "stride": list(layer.stride),
        "padding": padding if isinstance(padding, str) else list(padding),
        "dilation": list(layer.dilation),
        "groups": layer.groups,
    }
    value = with_size(value, layer.in_channels, name)
    tensors = named(weight=layer.weight, bias=layer.bias)
    return Value("conv", name, (value,), layer.out_channels, "", attributes, tensors, rank=IMAGES)


def linear(name: str, layer: nn.Linear, value: Value) -> Value:
    """A linear layer of a network of images; a binary one takes signs or fixed point."""
    value = of_rank(value, ROWS, name)
    if isinstance(layer, BinaryLinear):
        return _product(name, layer, value, ROWS, {})
    if type(layer) is not nn.Linear:
        raise Unsupported("its class is not known")
    value = with_size(value, layer.in_features, name)
    tensors = named(weight=layer.weight, bias=layer.bias)
    return Value("linear", name, (value,), layer.out_features, tensors=tensors, rank=ROWS)


def shortcut(name: str, layer: Any, value: Value) -> Value:
    """Every so many pixels, with zero channels appended."""
    value = with_size(of_rank(value, IMAGES, name), layer.in_channels, name)
    attributes = {"stride": _pair(layer.stride)}
    return Value("shortcut", name, (value,), layer.out_channels, "", attributes, rank=IMAGES)


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
    return part_of(name, x, attribute)


def _getitem(name: str, x: Any, key: Any) -> Any:
    if isinstance(x, Shape) and isinstance(key, int):
        return Length(x.value, key)
    return part_of(name, x, key)


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
    rows = _flattened(name, x)
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


def _of_colours(kind: Any, channels: int) -> Callable[..., Value]:
    def rule(name: str, x: Any) -> Value:
        value = with_size(of_rank(x, IMAGES, name), COLOURS, name)
        return Value(kind, name, (value,), channels, rank=IMAGES)

    return rule


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.flatten: flatten, "flatten": flatten, "view": _view, "reshape": _view,
    torch.reshape: lambda name, x, shape: _view(name, x, shape),
    "size": _size, getattr: _getattr, operator.getitem: _getitem,
    grey: _of_colours("grey", 1),
    local_binary_patterns: _of_colours("local_binary_patterns", COLOURS),
    torch.mean: _mean, "mean": _mean,
    functional.max_pool2d: max_pool, torch.max_pool2d: max_pool,
    functional.avg_pool2d: avg_pool, functional.adaptive_avg_pool2d: adaptive_avg_pool,
}  # fmt: skip
"""Rules of functions and methods that networks of images have beside those of every network."""
