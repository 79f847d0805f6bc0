"""Layers that look up their input's bits, as values: the same scale and shift as in training."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bitgnn.convert.values import Value, with_size
from bitgnn.nn import LayerPrecision
from bitgnn.nn.input_bits import InputBits
from bitgnn.nn.thermometer import TINY
from bitgnn.quantize.looked_up_linear import output_affine

__all__ = ["looked_up_bits", "looked_up_product", "narrowed_weight"]


def looked_up_product(
    name: str,
    layer: Any,
    letters: LayerPrecision,
    value: Value,
    linear: Any,
    first: Value | None = None,
    addend: Value | None = None,
) -> Value:
    """One of the products of a layer that looks up its input's bits, behind its norm or gain.

    Args:
        name: module name.
        layer: the graph layer.
        letters: its precision.
        value: what the product reads.
        linear: the map of the neighbours or, with ``addend``, that of the node itself.
        first: the neighbours' product of the same value, whose bits serve again.
        addend: is added to the product.
    """
    bits = _bits_for(layer, linear)
    assert bits is not None
    norm = layer.hidden_norm if addend is None else layer.root_norm
    normed = letters.hidden_norm is not None
    gain = layer.output_gain if addend is None else layer.root_gain
    gain = None if normed else gain
    if first is not None and bits is layer.input_bits:
        (read,) = first.inputs
    else:
        read = _words_of(name, bits, value, linear.in_channels)
    return _product(name, linear, bits, gain, norm if normed else None, read, addend)


def looked_up_bits(name: str, layer: Any, value: Value) -> Value:
    """The value whose signs are the bits that a layer's only product takes."""
    return _words_of(name, layer.input_bits, value, layer.lin.in_channels)


def narrowed_weight(layer: Any, linear: Any) -> Tensor:
    """Weights of features ``[M, K]`` of one of a layer's maps, for products of the input itself.

    Where thermometers have widened the map, a feature's weight is the sum of those of its bits.
    """
    weight: Tensor = linear.weight.detach()
    bits = _bits_for(layer, linear)
    if bits is None or bits.kind != "thermometer" or weight.size(1) != bits.columns.numel():
        return weight
    return weight.new_zeros(weight.size(0), linear.in_channels).index_add_(1, bits.columns, weight)


def _bits_for(layer: Any, linear: Any) -> InputBits | None:
    """What a map of a layer sees of its input; destinations may have features of their own."""
    own: InputBits | None = getattr(layer, "root_bits", None)
    roots = (getattr(layer, "lin_r", None), getattr(layer, "lin_root", None))
    if own is not None and any(linear is root for root in roots):
        return own
    # The map in front of SAGEConv's neighbours is one of floats.
    is_front = getattr(layer, "project", False) and linear is getattr(layer, "lin", None)
    return None if is_front else getattr(layer, "input_bits", None)


def _product(
    name: str,
    linear: Any,
    bits: InputBits,
    gain: Tensor | None,
    norm: Any,
    source: Value,
    addend: Value | None = None,
) -> Value:
    """The product of the bits that ``source`` holds."""
    weight = linear.weight
    scale, shift = output_affine(
        weight, bits.unit, bits.kind != "thermometer", bits.bit_offset, gain, norm
    )
    # An activation's bits stand for -1/2 and +1/2: without a norm nothing is added.
    bias = None if bits.kind == "activation" and norm is None else shift
    tensors = _copies(weight=weight, weight_scale=scale, bias=bias)
    inputs = (source,) if addend is None else (source, addend)
    return Value("product", name, inputs, weight.size(0), tensors=tensors)


def _words_of(name: str, bits: InputBits, value: Value, size: int) -> Value:
    """The value whose signs are the bits."""
    value = with_size(value, size, name)
    if bits.kind != "thermometer":
        if value.pattern is None:  # layers that read the same value read the same bits
            attributes = {"term": -TINY}
            value.pattern = Value("function", name, (value,), size, "shift", attributes)
        return value.pattern
    tensors = {"columns": bits.columns.clone(), "thresholds": bits.thresholds.clone()}
    return Value("function", name, (value,), bits.thresholds.numel(), "levels", {}, tensors)


def _copies(**tensors: Tensor | None) -> dict[str, Tensor]:
    return {
        name: tensor.detach().float().contiguous().clone()
        for name, tensor in tensors.items()
        if tensor is not None
    }
