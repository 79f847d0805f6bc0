"""Linear layers as values, parts shared with graph layers, and looked-up inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

import bitgnn.nn
from bitgnn.bits.letters import Letter
from bitgnn.convert.network.int8_rows import codes_of, int8_product, is_rows
from bitgnn.convert.network.values import (
    Unsupported,
    Value,
    batch_norm,
    function_of,
    named,
    with_size,
)
from bitgnn.nn import BinaryLinear, LayerPrecision, NodeStandardize
from bitgnn.nn.inputs.input_statistics import TINY
from bitgnn.nn.map_linear import remake_weight
from bitgnn.quantize.looked_up_linear import output_affine

Planned = Mapping[int, LayerPrecision]
"""Precisions in place of the layers' own, by ``id``."""

FLOAT = LayerPrecision.parse("fp32")
SIGNS = LayerPrecision.parse_linear("BBF")


def letters_of(layer: nn.Module, plan: Planned) -> LayerPrecision:
    """Precision of a layer: that of the plan, its own, or full precision for one of PyG's."""
    own = getattr(layer, "letters", FLOAT)
    return plan.get(id(layer), own)


def weight_of(linear: Any, name: str) -> Tensor:
    """The weight of a map."""
    if is_uninitialized_parameter(linear.weight):
        raise ValueError(
            f"freeze: layer {name!r} has no weight yet; run the model once so that it takes its "
            "width from the input"
        )
    remake_weight(linear)
    weight: Tensor = linear.weight.detach()
    return weight


def scale_of(name: str, layer: Any, quantizer: str, letter: Letter) -> Tensor | None:
    """The learnt scale ``[1]`` of a layer's ternary values, say, or None."""
    if not letter.level:
        return None
    found = getattr(layer, quantizer, None)
    if found is None:
        raise ValueError(
            f"freeze: layer {name!r} has no scale for ternary values; train it with these letters"
        )
    scale: Tensor = found.frozen_scale(f"{name}.{quantizer}", letter.level).view(1)
    return scale


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
    if letters.is_float_linear or letters.input_letter.kind:
        kind = "linear" if letters.is_float_linear else f"{letters.input_letter.kind}product"
        tensors = named(weight=weight, bias=bias, scale=scale)
        result = Value(kind, name, (value,), out, tensors=tensors)
        return result if addend is None else Value("add", name, (result, addend), out)
    key = "weight" if letters.bmm[1] == "B" else "float_weight"
    return Value(
        "product",
        name,
        (value,) if addend is None else (value, addend),
        out,
        tensors=named(**{key: weight, "bias": bias}),
        scaled=letters.bmm[0] == "F",
        takes_sign_of_dot=takes_sign_of_dot,
    )


def lower_linear(name: str, layer: Any, value: Value, plan: Planned) -> Value:
    """A linear layer of torch, PyG or this package."""
    letters, weight = letters_of(layer, plan), weight_of(layer, name)
    if isinstance(layer, BinaryLinear):
        if not layer.scale:
            raise Unsupported("its integers have no scale")
        return product(name, SIGNS, value, weight, bias=layer.bias)
    if not isinstance(layer, bitgnn.nn.Linear):
        return product(name, FLOAT, value, weight, bias=layer.bias)
    bias = layer.own_bias
    if letters.is_float:
        return product(name, FLOAT, value, weight, bias=bias)
    if letters.looks_up:
        out = looked_up_product(name, layer, letters, value, layer)
        if bias is not None:
            out = function_of(name, "bias", out, named(bias=bias))
        return function_of(name, "sign", out) if letters.bmm[2] == "B" else out
    hidden, output = layer.hidden_norm, layer.output_norm
    out = product(
        name,
        letters,
        prepare(name, layer, letters, value),
        weight,
        bias=bias if hidden is None else None,
        takes_sign_of_dot=bias is None and hidden is None and output is None,
        scale=scale_of(name, layer, "input_quantizer", letters.input_letter),
    )
    if hidden is not None:
        out = batch_norm(f"{name}.hidden_norm", hidden, out)
        if bias is not None:
            out = function_of(name, "bias", out, named(bias=bias))
    if output is not None:
        out = batch_norm(f"{name}.output_norm", output, out)
    return function_of(name, "sign", out) if letters.bmm[2] == "B" else out


def looked_up_product(
    name: str,
    layer: Any,
    letters: LayerPrecision,
    value: Value,
    linear: Any,
    addend: Value | None = None,
    *,
    is_root: bool = False,
) -> Value:
    """One of the products of a layer that looks up its input's form, behind its norm or gain.

    It has the same scale and shift as in training. ``linear`` is the map of the neighbours or,
    with ``addend`` or ``is_root``, that of the node itself.
    """
    normed, is_root = letters.hidden_norm is not None, is_root or addend is not None
    bits = _bits_for(layer, is_root)
    norm = (layer.root_norm if is_root else layer.hidden_norm) if normed else None
    gain = None if normed else layer.root_gain if is_root else layer.output_gain
    weight = weight_of(linear, name)
    if is_rows(bits):
        codes = codes_of(name, bits, value, linear.in_channels)
        return int8_product(name, codes, weight, norm, gain, addend)
    source = pattern_of(name, value, linear.in_channels)
    scale, shift = output_affine(weight, bits.unit, True, bits.bit_offset, gain, norm)
    # An activation's bits stand for -1/2 and +1/2: without a norm nothing is added.
    bias = None if bits.kind == "activation" and norm is None else shift
    tensors = named(weight=weight, weight_scale=scale, bias=bias)
    inputs = (source,) if addend is None else (source, addend)
    return Value("product", name, inputs, weight.size(0), tensors=tensors)


def looked_up_bits(name: str, layer: Any, value: Value) -> Value:
    """The value whose signs are the bits that a layer's only product takes."""
    return pattern_of(name, value, layer.lin.in_channels)


def _bits_for(layer: Any, is_root: bool) -> Any:
    """Input bits of a map of a layer; destinations may have features of their own."""
    own = getattr(layer, "root_bits", None)
    return layer.input_bits if own is None or not is_root else own


def pattern_of(name: str, value: Value, size: int) -> Value:
    """The value whose signs say which entries are above 0; layers that read the same share it."""
    value = with_size(value, size, name)
    if value.pattern is None:
        value.pattern = Value("function", name, (value,), size, "shift", {"term": -TINY})
    return value.pattern
