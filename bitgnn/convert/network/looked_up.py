"""Layers that look up their input's bits, as values: the same scale and shift as in training."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bitgnn.convert.network.values import Value, named, with_size
from bitgnn.inference.fusions.products import MOST_NARROW_COLUMNS, is_wide
from bitgnn.nn import LayerPrecision
from bitgnn.nn.products.input_bits import InputBits
from bitgnn.nn.products.thermometer import TINY
from bitgnn.ops.reference.pack import LEVEL_SLOT
from bitgnn.ops.reference.pairs import MAX_NARROW_SIZE
from bitgnn.quantize.looked_up_linear import output_affine

MOST_WASTE = 1.5
"""Times as many bits as there are that slots may have."""


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
    roots = (getattr(layer, "lin_r", None), getattr(layer, "lin_root", None))
    if own is not None and any(linear is root for root in roots):
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
    stay what they are.

    Attributes:
        size: all bits, an even number of them more than there were.
        places: where each bit goes.
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
