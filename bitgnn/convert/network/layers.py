"""Linear layers as values, and what graph layers share with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

import bitgnn.nn
from bitgnn.convert.network.looked_up import narrowed_weight
from bitgnn.convert.network.values import (
    Unsupported,
    Value,
    batch_norm,
    function_of,
    named,
    with_size,
)
from bitgnn.nn import BinaryLinear, LayerPrecision, NodeStandardize

FLOAT = LayerPrecision.parse("fp32")
SIGNS = LayerPrecision.parse_linear("BBF")


def letters_of(layer: nn.Module, plan: Mapping[int, LayerPrecision]) -> LayerPrecision:
    """Precision of a layer: that of the plan, its own, or full precision for one of PyG's."""
    own = getattr(layer, "letters", FLOAT)
    return plan.get(id(layer), own)


def weight_of(linear: Any, name: str, layer: Any = None) -> Tensor:
    """The weight of a map, which may be one of a layer's, for products of the input itself."""
    if is_uninitialized_parameter(linear.weight):
        raise ValueError(
            f"freeze: layer {name!r} has no weight yet; run the model once so that it takes its "
            "width from the input"
        )
    return narrowed_weight(linear if layer is None else layer, linear)


def sign(layer: str, value: Value) -> Value:
    """Signs of a value."""
    return function_of(layer, "sign", value)


def prepare(name: str, layer: Any, letters: LayerPrecision, value: Value) -> Value:
    """Input norm and hardtanh of a binary layer."""
    norm = getattr(layer, "input_norm", None)
    if isinstance(norm, NodeStandardize):
        value = function_of(f"{name}.input_norm", "standardize", value)
    elif norm is not None:
        value = batch_norm(f"{name}.input_norm", norm, value)
    if letters.hardtanh:
        value = function_of(name, "hardtanh", value, low=-1.0, high=1.0)
    return value


def product(
    name: str,
    letters: LayerPrecision,
    value: Value,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    addend: Value | None = None,
    takes_sign_of_dot: bool = False,
    scale: Tensor | None = None,
) -> Value:
    """The dense product of prepared activations, up to the letters' boundary.

    ``scale`` is that of ternary activations.
    """
    out = weight.size(0)
    value = with_size(value, weight.size(1), name)
    if letters.is_float_linear:
        result = Value("linear", name, (value,), out, tensors=named(weight=weight, bias=bias))
        return result if addend is None else Value("add", name, (result, addend), out)
    if letters.takes_ternary:
        tensors = named(weight=weight, bias=bias, scale=scale)
        result = Value("ternary_product", name, (value,), out, tensors=tensors)
        return result if addend is None else Value("add", name, (result, addend), out)
    key = "weight" if letters.bmm[1] == "B" else "float_weight"
    tensors = named(**{key: weight, "bias": bias})
    inputs = (value,) if addend is None else (value, addend)
    return Value(
        "product",
        name,
        inputs,
        out,
        tensors=tensors,
        scaled=letters.bmm[0] == "F",
        takes_sign_of_dot=takes_sign_of_dot,
    )


def lower_linear(name: str, layer: Any, value: Value, plan: Mapping[int, LayerPrecision]) -> Value:
    """A linear layer of torch, PyG or this package.

    Raises:
        Unsupported: it is a ``BinaryLinear`` without scale.
    """
    letters, weight = letters_of(layer, plan), weight_of(layer, name)
    if isinstance(layer, BinaryLinear):
        if not layer.scale:
            raise Unsupported("its integers have no scale")
        return product(name, SIGNS, value, weight, bias=layer.bias)
    if not isinstance(layer, bitgnn.nn.Linear):
        return product(name, FLOAT, value, weight, bias=layer.bias)
    norms = (layer.hidden_norm, layer.output_norm)
    to_bits = letters.bmm[2] == "B"
    bare = layer.bias is None and norms == (None, None)
    hidden, output = norms
    first_bias = layer.bias if hidden is None else None
    out = product(
        name,
        letters,
        prepare(name, layer, letters, value),
        weight,
        bias=first_bias,
        takes_sign_of_dot=bare,
        scale=scale_of(name, layer, "input_quantizer", letters.takes_ternary),
    )
    if hidden is not None:
        out = batch_norm(f"{name}.hidden_norm", hidden, out)
        if layer.bias is not None:
            out = Value("function", name, (out,), out.size, "bias", {}, named(bias=layer.bias))
    if output is not None:
        out = batch_norm(f"{name}.output_norm", output, out)
    return sign(name, out) if to_bits else out


def scale_of(name: str, layer: Any, quantizer: str, is_ternary: bool) -> Tensor | None:
    """The learnt scale ``[1]`` of a layer's ternary values; None where there are none.

    Raises:
        ValueError: the layer was not trained with ternary values, so that it has none.
    """
    if not is_ternary:
        return None
    found = getattr(layer, quantizer, None)
    if found is None:
        raise ValueError(
            f"freeze: layer {name!r} has no scale for ternary values; train it with these letters"
        )
    scale: Tensor = found.frozen_scale(f"{name}.{quantizer}").view(1)
    return scale
