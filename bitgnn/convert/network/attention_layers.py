"""Attention layers as values: signs of projections, scores of these, weighted sums of signs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitgnn.convert.network.layers import (
    FLOAT,
    looked_up_product,
    pattern_of,
    prepare,
    product,
    weight_of,
)
from bitgnn.convert.network.values import Unsupported, Value, batch_norm, function_of, named
from bitgnn.inference.graph import GraphSpec
from bitgnn.nn.attention.attention_layer import mean_weight
from bitgnn.nn.attention.gatv2_conv import GATv2Conv
from bitgnn.ops.linear import MOST_FEATURES
from bitgnn.quantize import sgn
from bitgnn.quantize.looked_up_linear import output_affine

MOST_GROWTH = 4
"""Columns of float sums of a layer's input, a column of its result, up to which they come first."""


def lower_attention(name: str, layer: Any, letters: Any, value: Value, spec: GraphSpec) -> Value:
    """A GATConv or GATv2Conv of this package in a binary form.

    The value of kind ``"attend"`` takes the signs of its inputs: of messages, and of projections of
    sources and destinations where scores are those of pairs of bits.
    """
    if layer.edge_dim is not None:
        raise Unsupported("its scores take features of edges")
    if not isinstance(layer.in_channels, int):
        raise Unsupported("sources and destinations have projections of their own")
    prepared = prepare(name, layer, letters, value)
    linear, second = layer._maps
    is_v2, has_bias = isinstance(layer, GATv2Conv), layer._message_bias() is not None
    if has_bias and not layer.add_self_loops:
        raise Unsupported("its messages have a bias, which a node without any lacks")
    sides: tuple[Value, ...] = ()
    if letters.bspmm[0] == "B" or is_v2:
        left = _projection(name, layer, letters, prepared, linear, layer.hidden_norm)
        right = left
        if second is not None:
            right = _projection(name, layer, letters, prepared, second, layer.root_norm, True)
        sides = tuple(function_of(name, "sign", side) for side in (left, right))
    if letters.bspmm[0] == "B":
        bias = layer._operator_bias()
        tensors = _pair_tensors(layer) if is_v2 else named(score_weight=layer.score_weight())
        inputs = (sides[0], *sides) if is_v2 else sides[:1]
        out = _attend(layer, name, inputs, spec, False, {**tensors, **named(bias=bias)})
        if not layer.concat:
            weight = mean_weight(layer.heads, layer.out_channels, linear.weight.detach().float())
            out = Value(
                "linear", _map_of(name, layer), (out,), weight.size(0), tensors=named(weight=weight)
            )
        rest = None if layer.concat and layer.res is None else layer.bias
    else:
        out = _sums_first(name, layer, letters, prepared, linear, spec, sides)
        rest = None if layer.res is None else layer.bias
    if layer.res is not None:
        own = product(f"{name}.res", FLOAT, value, weight_of(layer.res, name))
        out = Value("add", name, (out, own), out.size)
    if rest is not None:
        out = function_of(name, "bias", out, named(bias=rest))
    if layer.output_norm is not None:
        out = batch_norm(f"{name}.output_norm", layer.output_norm, out)
    return function_of(name, "sign", out) if letters.bspmm[2] == "B" else out


def _projection(
    name: str,
    layer: Any,
    letters: Any,
    prepared: Value,
    linear: Any,
    norm: Any,
    is_root: bool = False,
) -> Value:
    """A projection behind its norm or gain."""
    if letters.looks_up:
        return looked_up_product(name, layer, letters, prepared, linear, is_root=is_root)
    norm = None if letters.hidden_norm is None else norm
    takes_dot = norm is None and not is_root
    z = product(name, letters, prepared, weight_of(linear, name), takes_sign_of_dot=takes_dot)
    return z if norm is None else batch_norm(f"{name}.hidden_norm", norm, z)


def _attend(
    layer: Any,
    name: str,
    inputs: tuple[Value, ...],
    spec: GraphSpec,
    shared: bool,
    tensors: dict[str, Tensor],
) -> Value:
    size = inputs[0].size
    assert size is not None
    options = {"heads": layer.heads, "shared": shared}
    if len(inputs) == 1:
        options["negative_slope"] = float(layer.negative_slope)
    columns = layer.heads * size if shared else size
    return Value("attend", name, inputs, columns, attributes=options, tensors=tensors, spec=spec)


def _sums_first(
    name: str,
    layer: Any,
    letters: Any,
    prepared: Value,
    linear: Any,
    spec: GraphSpec,
    sides: tuple[Value, ...],
) -> Value:
    r"""Float messages ``scale * (x . sgn(W)) + shift``: the bits x are summed, then multiplied.

    The weights of a node's edges add up to 1, so that the shift needs no sum.
    """
    bits, heads, channels = layer.input_bits, layer.heads, layer.out_channels
    if bits is None or bits.kind == "rows":
        raise Unsupported("its messages are floats")
    size = linear.weight.size(1)
    if size > MOST_GROWTH * channels and letters.order != "aggregate_first":
        raise Unsupported("its messages are floats of many features")
    if heads * size > MOST_FEATURES:
        raise Unsupported("its heads have too many features")
    norm = None if layer.letters.hidden_norm is None else layer.hidden_norm
    weight, gain = weight_of(linear, name), layer.output_gain if norm is None else None
    scale, shift = output_affine(weight, bits.unit, True, bits.bit_offset, gain, norm)
    has_shift = norm is not None or bits.kind != "activation"
    if has_shift and not layer.add_self_loops:
        raise Unsupported("its messages have a shift, which a node without any lacks")
    whole = (scale.unsqueeze(1) * sgn(weight).float()).view(heads, channels, size)
    shift = shift.view(heads, channels) if has_shift else shift.new_zeros(heads, channels)
    pattern = pattern_of(name, prepared, size)
    if sides:
        inputs, tensors = (pattern, *sides), _pair_tensors(layer)
    else:
        atts = [
            att.detach().float().view(heads, channels, 1) for att in (layer.att_src, layer.att_dst)
        ]
        score = torch.cat([(att * whole).sum(1) for att in atts])
        base = torch.cat([(att.squeeze(2) * shift).sum(1) for att in atts])
        inputs, tensors = (pattern,), named(score_weight=score, score_bias=base)
    out = _attend(layer, name, inputs, spec, True, tensors)
    constant = shift.flatten()
    own = layer._message_bias()
    constant = constant if own is None else constant + own.detach().float()
    if layer.concat:
        maps = torch.block_diag(*whole)
    else:
        maps = torch.cat(list(whole / heads), 1)
        constant = constant.view(heads, channels).mean(0)
    added = layer.bias if layer.res is None else None
    constant = constant if added is None else constant + added.detach().float()
    has_constant = has_shift or own is not None or added is not None
    last = named(weight=maps, bias=constant if has_constant else None)
    return Value("linear", _map_of(name, layer), (out,), maps.size(0), tensors=last)


def _map_of(name: str, layer: Any) -> str:
    """Name of the map behind sums of bits."""
    return f"{name}.{'lin_l' if isinstance(layer, GATv2Conv) else 'lin'}"


def _pair_tensors(layer: Any) -> dict[str, Tensor]:
    """Integer weights of the scores of pairs of bits."""
    return dict(layer.pair_weights()._asdict())
