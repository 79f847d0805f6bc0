"""Modules and functions on images, and on their shapes, as values."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.convert.network.functions import ITSELF, UNKNOWN, Rule, part_of
from bitgnn.convert.network.values import (
    IMAGES,
    ROWS,
    Unsupported,
    Value,
    named,
    of_rank,
    with_size,
)
from bitgnn.nn import BinaryConv2d, BinaryLinear, ChannelShortcut
from bitgnn.quantize import canonical_row_scale
from bitgnn.quantize.images import COLOURS, grey, local_binary_patterns

_ALL_OF_IT = "only all of an image can be flattened"
_PIXELS = ({2, 3}, {-2, -1}, {2, -1}, {-2, 3})


def _of_images(kind: str, name: str, value: Value, size: int | None, **attributes: Any) -> Value:
    return Value(kind, name, (value,), size, "", attributes, rank=IMAGES)


def _pair(value: Any, may_be_none: bool = False) -> list[Any]:
    """A number for both axes in full."""
    both = list(value) if isinstance(value, tuple | list) else [value]
    both = both * 2 if len(both) == 1 else both
    if len(both) != 2 or not all(type(v) is int or (may_be_none and v is None) for v in both):
        raise Unsupported("its numbers are no constants")
    return both


def _flatten(name: str, x: Any, start_dim: int = 0, end_dim: int = -1) -> Value:
    """Images as rows ``[N, C * H * W]``; rows as they are."""
    if start_dim != 1 or end_dim not in (-1, IMAGES - 1):
        raise Unsupported(_ALL_OF_IT)
    if isinstance(x, Value) and x.rank == ROWS:
        return x
    return Value("flatten", name, (of_rank(x, IMAGES),), rank=ROWS)


def _max_pool(
    name: str,
    value: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Value:
    if return_indices:
        raise Unsupported("it returns indices")
    value = of_rank(value, IMAGES)
    return _of_images(
        "max_pool", name, value, value.size, kernel=_pair(kernel_size),
        stride=_pair(kernel_size if stride in (None, []) else stride), padding=_pair(padding),
        dilation=_pair(dilation), ceil_mode=bool(ceil_mode),
    )  # fmt: skip


def _avg_pool(
    name: str,
    value: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    value = of_rank(value, IMAGES)
    return _of_images(
        "avg_pool", name, value, value.size, kernel=_pair(kernel_size),
        stride=_pair(kernel_size if stride in (None, []) else stride), padding=_pair(padding),
        ceil_mode=bool(ceil_mode), count_include_pad=bool(count_include_pad),
        divisor=divisor_override,
    )  # fmt: skip


def _adaptive_avg_pool(name: str, value: Any, output_size: Any) -> Value:
    value = of_rank(value, IMAGES)
    output = _pair(output_size, may_be_none=True)
    return _of_images("adaptive_avg_pool", name, value, value.size, output=output)


def _shortcut(name: str, value: Any, layer: ChannelShortcut) -> Value:
    """Strided pixels with zero channels appended."""
    value = with_size(of_rank(value, IMAGES), layer.in_channels, name)
    return _of_images("shortcut", name, value, layer.out_channels, stride=_pair(layer.stride))


def _of_colours(kind: str, channels: int, name: str, x: Any) -> Value:
    return _of_images(kind, name, with_size(of_rank(x, IMAGES), COLOURS, name), channels)


def _sides(layer: nn.Conv2d) -> list[int]:
    """Padding of the four sides."""
    if isinstance(layer.padding, tuple):
        return [side for side in layer.padding for _ in range(2)]
    if layer.padding == "valid":
        return [0] * 4
    total = [d * (k - 1) for k, d in zip(layer.kernel_size, layer.dilation, strict=True)]
    return [side for t in total for side in (t // 2, t - t // 2)]


def _product(name: str, layer: Any, value: Value, rank: int, numbers: Mapping[str, Any]) -> Value:
    """A binary convolution or linear map: of signs, or of fixed point where it is a first layer."""
    weight: Tensor = layer.weight.detach()
    scale = canonical_row_scale(weight.flatten(1)).float() if layer.scale else None
    tensors = {"weight": weight.float().contiguous().clone()}
    tensors |= named(scale=scale, bias=layer.bias)
    groups = numbers.get("groups", 1)
    if layer.input_step is not None and groups != 1:
        raise Unsupported("a first layer of several groups has no form in frozen models")
    attributes = {**numbers, "input_step": layer.input_step}
    value = with_size(value, weight.size(1) * groups, name)
    return Value("product", name, (value,), weight.size(0), "", attributes, tensors, rank=rank)


def _convolution(name: str, value: Any, layer: nn.Conv2d) -> Value:
    if layer.padding_mode != "zeros":
        raise Unsupported(f"padding_mode {layer.padding_mode!r} has no form in frozen models")
    value, is_binary = of_rank(value, IMAGES), isinstance(layer, BinaryConv2d)
    padding: Any = _sides(layer) if is_binary else layer.padding
    padding = padding if isinstance(padding, str) else list(padding)
    numbers = {
        "stride": list(layer.stride), "padding": padding, "dilation": list(layer.dilation),
        "groups": layer.groups,
    }  # fmt: skip
    if is_binary:
        if layer.padding_value:
            top, bottom, left, right = padding
            numbers |= {"padding": [0] * 4, "frame": [0, 0, left, right, top, bottom]}
        return _product(name, layer, value, IMAGES, numbers)
    if type(layer) is not nn.Conv2d:
        raise Unsupported("its class is not known")
    value = with_size(value, layer.in_channels, name)
    tensors = named(weight=layer.weight, bias=layer.bias)
    return Value("conv", name, (value,), layer.out_channels, "", numbers, tensors, rank=IMAGES)


def _linear(name: str, value: Any, layer: nn.Linear) -> Value:
    """A linear layer of a network of images; a binary one takes signs or fixed point."""
    value = of_rank(value, ROWS)
    if isinstance(layer, BinaryLinear):
        return _product(name, layer, value, ROWS, {})
    if type(layer) is not nn.Linear:
        raise Unsupported("its class is not known")
    value = with_size(value, layer.in_features, name)
    tensors = named(weight=layer.weight, bias=layer.bias)
    return Value("linear", name, (value,), layer.out_features, tensors=tensors)


@dataclass(frozen=True)
class Shape:
    """The shape of a value, known at run time only, or the length of one dimension."""

    value: Value
    dim: int | None


def _size(name: str, x: Any, dim: int | None = None) -> Shape:
    if not isinstance(x, Value):
        raise Unsupported(UNKNOWN)
    return Shape(x, dim)


def _getattr(name: str, x: Any, attribute: str, *rest: Any) -> Any:
    is_shape = isinstance(x, Value) and attribute == "shape"
    return Shape(x, None) if is_shape else part_of(name, x, attribute)


def _getitem(name: str, x: Any, key: Any) -> Any:
    if isinstance(x, Shape) and x.dim is None and isinstance(key, int):
        return Shape(x.value, key)
    return part_of(name, x, key)


def _view(name: str, x: Any, *shape: Any) -> Value:
    """``x.view(x.size(0), -1)`` and the like."""
    if len(shape) == 1 and isinstance(shape[0], tuple | list):
        shape = tuple(shape[0])
    if len(shape) != ROWS or not isinstance(x, Value):
        raise Unsupported(_ALL_OF_IT)
    first, second = shape
    is_size = type(second) is int and second > 0
    keeps_rows = isinstance(first, Shape) and first.dim == 0 and isinstance(second, int)
    if not keeps_rows and not (first == -1 and is_size):
        raise Unsupported(_ALL_OF_IT)
    rows = _flatten(name, x, 1)
    if is_size and rows.size is None:
        rows.size = second
    return rows


def _mean(name: str, x: Any, dim: Any = None, keepdim: bool = False, **options: Any) -> Value:
    dims = {d for d in dim if type(d) is int} if isinstance(dim, tuple | list) else set()
    if dims not in _PIXELS or keepdim or options:
        raise Unsupported("only the mean of all pixels has a form in frozen models")
    value = of_rank(x, IMAGES)
    return Value("mean_pixels", name, (value,), value.size)


_POOL = "kernel_size stride padding"
MODULES: tuple[tuple[Any, Rule, str], ...] = (
    (nn.Conv2d, _convolution, ITSELF),
    (ChannelShortcut, _shortcut, ITSELF),
    (nn.Flatten, _flatten, "start_dim end_dim"),
    (nn.MaxPool2d, _max_pool, f"{_POOL} dilation ceil_mode return_indices"),
    (nn.AvgPool2d, _avg_pool, f"{_POOL} ceil_mode count_include_pad divisor_override"),
    (nn.AdaptiveAvgPool2d, _adaptive_avg_pool, "output_size"),
)
LINEAR = (nn.Linear, _linear, ITSELF)
"""Rows as those of every network; the last is for networks of images alone."""

FUNCTIONS: dict[Any, Rule] = {
    torch.flatten: _flatten, "flatten": _flatten, "view": _view, "reshape": _view,
    torch.reshape: _view, "size": _size, getattr: _getattr, operator.getitem: _getitem,
    grey: partial(_of_colours, "grey", 1),
    local_binary_patterns: partial(_of_colours, "local_binary_patterns", COLOURS),
    torch.mean: _mean, "mean": _mean,
    functional.max_pool2d: _max_pool, torch.max_pool2d: _max_pool,
    functional.avg_pool2d: _avg_pool, functional.adaptive_avg_pool2d: _adaptive_avg_pool,
}  # fmt: skip
"""Rules of functions and methods that networks of images have beside those of every network."""
