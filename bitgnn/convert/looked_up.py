"""Layers that look up their input's bits, as values: the same scale and shift as in training."""

from __future__ import annotations

from typing import Any

import torch_geometric.nn
from torch import Tensor

from bitgnn.convert.values import Value, with_size
from bitgnn.inference.graph import GraphSpec
from bitgnn.nn.input_bits import TINY, InputBits
from bitgnn.quantize.looked_up_linear import output_affine

__all__ = ["lower_looked_up"]


def lower_looked_up(
    name: str,
    layer: Any,
    sources: tuple[Value, Value],
    maps: tuple[Any, Any],
    spec: GraphSpec,
) -> Value:
    """A graph layer of named precision up to its own normalisation.

    Args:
        name: module name.
        layer: the layer.
        sources: what the neighbours' product reads, and the node's own one.
        maps: the linear maps of both; the second may be None.
        spec: of the adjacency.
    """
    linear, root = maps
    normed = layer.letters.hidden_norm is not None
    norm = layer.hidden_norm if normed else None
    bits = bits_of(name, layer.input_bits, sources[0], linear.in_channels)
    gain = None if normed else layer.log_gain
    z = _product(name, linear, layer.input_bits, gain, norm, bits)
    if layer.letters.bmm[2] == "B":
        z = Value("function", name, (z,), z.size, "sign")
    is_gcn = isinstance(layer, torch_geometric.nn.GCNConv)
    bias = layer.bias if is_gcn else linear.bias
    out = Value("aggregate", name, (z,), z.size, tensors=_copies(bias=bias), spec=spec)
    if root is None:
        return out
    looked_up = layer.input_bits
    if layer.root_bits is not None:
        looked_up = layer.root_bits
        bits = bits_of(name, looked_up, sources[1], root.in_channels)
    norm = layer.root_norm if normed else None
    return _product(name, root, looked_up, gain, norm, bits, out)


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
    scale, shift = output_affine(weight, bits.kind != "thermometer", bits.unit, gain, norm)
    tensors = _copies(weight=weight, weight_scale=scale, bias=shift)
    inputs = (source,) if addend is None else (source, addend)
    return Value("product", name, inputs, weight.size(0), tensors=tensors)


def bits_of(name: str, bits: InputBits, value: Value, size: int) -> Value:
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
