"""Linear layers as values, what graph layers share with them, and bits that layers look up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

import bitgnn.nn
from bitgnn.convert.network.values import (
    Unsupported,
    Value,
    batch_norm,
    function_of,
    named,
    with_size,
)
from bitgnn.inference.fusions.products import MOST_NARROW_COLUMNS, is_wide
from bitgnn.nn import BinaryLinear, LayerPrecision, NodeStandardize
from bitgnn.nn.input_bits import InputBits
from bitgnn.nn.input_statistics import TINY
from bitgnn.ops.reference.pack import LEVEL_SLOT
from bitgnn.ops.reference.pairs import MAX_NARROW_SIZE
from bitgnn.quantize.looked_up_linear import output_affine

Planned = Mapping[int, LayerPrecision]
"""Precisions in place of the layers' own, by ``id``."""

FLOAT = LayerPrecision.parse("fp32")
SIGNS = LayerPrecision.parse_linear("BBF")
MOST_WASTE = 1.5
"""Times as many bits as there are that slots of thermometers may have."""


def letters_of(layer: nn.Module, plan: Planned) -> LayerPrecision:
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


def scale_of(name: str, layer: Any, quantizer: str, is_ternary: bool) -> Tensor | None:
    """The learnt scale ``[1]`` of a layer's ternary values; None where there are none."""
    if not is_ternary:
        return None
    found = getattr(layer, quantizer, None)
    if found is None:
        raise ValueError(
            f"freeze: layer {name!r} has no scale for ternary values; train it with these letters"
        )
    scale: Tensor = found.frozen_scale(f"{name}.{quantizer}").view(1)
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
    if letters.is_float_linear or letters.takes_ternary:
        kind = "linear" if letters.is_float_linear else "ternary_product"
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
    hidden, output = layer.hidden_norm, layer.output_norm
    out = product(
        name,
        letters,
        prepare(name, layer, letters, value),
        weight,
        bias=layer.bias if hidden is None else None,
        takes_sign_of_dot=layer.bias is None and hidden is None and output is None,
        scale=scale_of(name, layer, "input_quantizer", letters.takes_ternary),
    )
    if hidden is not None:
        out = batch_norm(f"{name}.hidden_norm", hidden, out)
        if layer.bias is not None:
            out = function_of(name, "bias", out, named(bias=layer.bias))
    if output is not None:
        out = batch_norm(f"{name}.output_norm", output, out)
    return function_of(name, "sign", out) if letters.bmm[2] == "B" else out


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

    It has the same scale and shift as in training. ``linear`` is the map of the neighbours or,
    with ``addend``, that of the node itself; ``first`` is the neighbours' product of the same
    value, whose bits serve again.
    """
    bits = _bits_for(layer, linear)
    assert bits is not None
    normed, is_root = letters.hidden_norm is not None, addend is not None
    norm = (layer.root_norm if is_root else layer.hidden_norm) if normed else None
    gain = None if normed else layer.root_gain if is_root else layer.output_gain
    slots = _slots(bits)
    if first is not None and bits is layer.input_bits:
        source = first.inputs[0]
    else:
        source = _words_of(name, bits, slots, value, linear.in_channels)
    weight = linear.weight
    scale, shift = output_affine(
        weight, bits.unit, bits.kind != "thermometer", bits.bit_offset, gain, norm
    )
    # An activation's bits stand for -1/2 and +1/2: without a norm nothing is added.
    bias = None if bits.kind == "activation" and norm is None else shift
    weight = weight if slots is None else slots.weight(weight)
    tensors = named(weight=weight, weight_scale=scale, bias=bias)
    inputs = (source,) if addend is None else (source, addend)
    return Value("product", name, inputs, weight.size(0), tensors=tensors)


def looked_up_bits(name: str, layer: Any, value: Value) -> Value:
    """The value whose signs are the bits that a layer's only product takes."""
    bits: InputBits = layer.input_bits
    return _words_of(name, bits, _slots(bits), value, layer.lin.in_channels)


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
    """Input bits of a map of a layer; destinations may have features of their own."""
    own: InputBits | None = getattr(layer, "root_bits", None)
    if own is not None and linear in (getattr(layer, n, None) for n in ("lin_r", "lin_root")):
        return own
    # The map in front of SAGEConv's neighbours is one of floats.
    is_front = getattr(layer, "project", False) and linear is getattr(layer, "lin", None)
    return None if is_front else getattr(layer, "input_bits", None)


def _words_of(name: str, bits: InputBits, slots: _Slots | None, value: Value, size: int) -> Value:
    """The value whose signs are the bits."""
    value = with_size(value, size, name)
    if bits.kind != "thermometer":
        if value.pattern is None:  # layers that read the same value read the same bits
            attributes = {"term": -TINY}
            value.pattern = Value("function", name, (value,), size, "shift", attributes)
        return value.pattern
    if slots is None:
        tensors = {"columns": bits.columns.clone(), "thresholds": bits.thresholds.clone()}
    else:
        tensors = {"thresholds": slots.thresholds(bits.thresholds)}
    size = tensors["thresholds"].numel()
    return Value("function", name, (value,), size, "levels", {}, tensors)


class _Slots(NamedTuple):
    """Thermometers with 16 adjacent bits a feature, which are packed fastest.

    Bits that a feature lacks are never set. Their weights are +1 and -1 in turns, so that products
    stay what they are: ``size``, all bits, is an even number more than there were. ``places`` is
    where each bit goes.
    """

    size: int
    places: Tensor

    def thresholds(self, thresholds: Tensor) -> Tensor:
        """No value reaches NaN."""
        return thresholds.new_full((self.size,), torch.nan).index_copy_(0, self.places, thresholds)

    def weight(self, weight: Tensor) -> Tensor:
        """``[M, size]`` of a latent weight."""
        is_new = torch.ones(self.size, dtype=torch.bool, device=weight.device)
        is_new[self.places] = False
        signs = 1.0 - 2.0 * (is_new.cumsum(0) % 2)
        widened = signs.to(weight.dtype).repeat(weight.size(0), 1)
        return widened.index_copy_(1, self.places, weight.detach())


def _slots(bits: InputBits) -> _Slots | None:
    """The slots of thermometers, where they waste little and change no order of sums."""
    if bits.kind != "thermometer":
        return None
    columns, features = bits.columns, bits.median.numel()
    counts = columns.bincount(minlength=features)
    most, number = LEVEL_SLOT * features, columns.numel()
    # The last slot ends one bit earlier where the number of bits is odd, as every slot has room.
    size = most - (most - number) % 2
    is_wasteful = size > MOST_WASTE * number or int(counts.max()) >= LEVEL_SLOT
    is_sorted = bool((columns.diff() >= 0).all())
    # Of products with more columns than narrow rows have, the size may settle the order of sums.
    is_long = [is_wide(MOST_NARROW_COLUMNS + 1, each, True) for each in (size, number)]
    if is_wasteful or not is_sorted or size > MAX_NARROW_SIZE or is_long[0] != is_long[1]:
        return None
    first = counts.cumsum(0) - counts
    places = columns * LEVEL_SLOT + torch.arange(number, device=columns.device) - first[columns]
    return _Slots(size, places)
