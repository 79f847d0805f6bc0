"""What modules compute on images and on rows of a convolutional network, as values."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bitgnn.convert.network.activations import DROPOUTS, lower_module
from bitgnn.convert.network.values import (
    IMAGES,
    ROWS,
    Unsupported,
    Value,
    batch_norm,
    function_of,
    named,
    with_size,
)
from bitgnn.nn import BinaryConv2d, BinaryLinear, ChannelShortcut
from bitgnn.quantize import canonical_row_scale

__all__ = [
    "BINARY", "avg_pool", "conv_numbers", "flattened", "function_on", "lower_image_module",
    "max_pool", "of_rank", "pair",
]  # fmt: skip

BINARY = (BinaryConv2d, BinaryLinear)
_BATCH_NORMS: dict[type[nn.Module], int] = {nn.BatchNorm2d: IMAGES, nn.BatchNorm1d: ROWS}


def pair(value: Any) -> list[int]:
    """A number for both axes in full.

    Raises:
        Unsupported: it is computed by the forward.
    """
    both = list(value) if isinstance(value, tuple | list) else [value, value]
    both = both * 2 if len(both) == 1 else both
    if len(both) != 2 or not all(type(v) is int for v in both):
        raise Unsupported("its numbers are no constants")
    return both


def of_rank(value: Any, rank: int, name: str) -> Value:
    """Settle the number of dimensions of a value where it is not known.

    Raises:
        Unsupported: ``value`` is none, or has another number of dimensions.
    """
    if not isinstance(value, Value):
        raise Unsupported("it takes something else than images or rows")
    known = value
    while known.rank is None:
        known.rank = rank
        if known.kind != "function":
            break
        known = known.inputs[0]
    if value.rank != rank:
        raise Unsupported(f"it takes {rank} dimensions, gets {value.rank}")
    return value


def function_on(value: Value, layer: str, name: str, **attributes: Any) -> Value:
    """A function of every entry; behind a flattening it is moved in front."""
    if value.kind == "flatten":
        inner = function_on(value.inputs[0], layer, name, **attributes)
        return Value("flatten", value.layer, (inner,), value.size, rank=ROWS)
    return function_of(layer, name, value, **attributes)


def flattened(layer: str, value: Any) -> Value:
    """Images as rows ``[N, C * H * W]``; rows as they are."""
    if not isinstance(value, Value):
        raise Unsupported("it takes something else than images or rows")
    if value.rank == ROWS:
        return value
    return Value("flatten", layer, (of_rank(value, IMAGES, layer),), rank=ROWS)


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
        "kernel": pair(kernel),
        "stride": pair(kernel if stride is None or stride == [] else stride),
        "padding": pair(padding),
        "dilation": pair(dilation),
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
        "kernel": pair(kernel),
        "stride": pair(kernel if stride is None or stride == [] else stride),
        "padding": pair(padding),
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


def conv_numbers(layer: nn.Conv2d) -> dict[str, Any]:
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


def _conv(name: str, layer: nn.Conv2d, value: Value) -> Value:
    if layer.padding_mode != "zeros":
        raise Unsupported(f"padding_mode {layer.padding_mode!r} has no form in frozen models")
    value = of_rank(value, IMAGES, name)
    if isinstance(layer, BinaryConv2d):
        return _product(name, layer, value, IMAGES, conv_numbers(layer))
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


def _linear(name: str, layer: nn.Linear, value: Value) -> Value:
    value = of_rank(value, ROWS, name)
    if isinstance(layer, BinaryLinear):
        return _product(name, layer, value, ROWS, {})
    if type(layer) is not nn.Linear:
        raise Unsupported("its class is not known")
    value = with_size(value, layer.in_features, name)
    tensors = named(weight=layer.weight, bias=layer.bias)
    return Value("linear", name, (value,), layer.out_features, tensors=tensors, rank=ROWS)


def _shortcut(name: str, layer: Any, value: Value) -> Value:
    value = with_size(of_rank(value, IMAGES, name), layer.in_channels, name)
    attributes = {"stride": pair(layer.stride)}
    return Value("shortcut", name, (value,), layer.out_channels, "", attributes, rank=IMAGES)


def lower_image_module(name: str, module: nn.Module, value: Value) -> Value:
    """A module of one value.

    Raises:
        Unsupported: only its own code can do what it does.
        ValueError: channels do not fit.
    """
    if isinstance(module, nn.Conv2d):
        return _conv(name, module, value)
    if isinstance(module, nn.Linear):
        return _linear(name, module, value)
    rank = _BATCH_NORMS.get(type(module))
    if rank is not None:
        return batch_norm(name, module, of_rank(value, rank, name))
    if isinstance(module, ChannelShortcut):
        return _shortcut(name, module, value)
    if isinstance(module, nn.MaxPool2d):
        numbers: tuple[Any, ...] = (module.kernel_size, module.stride, module.padding)
        rest: Any = (module.dilation, module.ceil_mode, module.return_indices)
        return max_pool(name, value, *numbers, *rest)
    if isinstance(module, nn.AvgPool2d):
        numbers = (module.kernel_size, module.stride, module.padding)
        options = (module.ceil_mode, module.count_include_pad, module.divisor_override)
        return avg_pool(name, value, *numbers, *options)
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return adaptive_avg_pool(name, value, module.output_size)
    if isinstance(module, nn.Flatten):
        if (module.start_dim, module.end_dim) not in ((1, -1), (1, IMAGES - 1)):
            raise Unsupported("only all of an image can be flattened")
        return flattened(name, value)
    if isinstance(module, (*DROPOUTS, nn.Dropout2d)):
        return value
    return _activation(name, module, value)


def _activation(name: str, module: nn.Module, value: Value) -> Value:
    """An activation function, or softmax of rows."""
    if isinstance(module, nn.Softmax | nn.LogSoftmax):
        of_rank(value, ROWS, name)
    elif isinstance(module, nn.LayerNorm):
        raise Unsupported("frozen models know no such function of images")
    found = lower_module(name, module, value)
    if found.kind == "function" and not found.tensors and found.name not in _OF_ROWS:
        return function_on(value, name, found.name, **found.attributes)
    found.rank = value.rank
    return found


_OF_ROWS = ("softmax", "log_softmax", "standardize")
