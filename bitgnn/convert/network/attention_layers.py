"""Attention layers as values: signs of projections, scores of these, weighted sums of signs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bitgnn.convert.network.layers import (
    FLOAT,
    Planned,
    looked_up_product,
    lower_linear,
    pattern_of,
    prepare,
    product,
    weight_of,
)
from bitgnn.convert.network.values import (
    Part,
    Unsupported,
    Value,
    batch_norm,
    function_of,
    named,
)
from bitgnn.inference.graph import GraphSpec
from bitgnn.inference.own_code.calls import EDGE_INDEX, NODES, FloatCall, Input
from bitgnn.nn.attention.attention_layer import mean_weight
from bitgnn.nn.attention.gatv2_conv import GATv2Conv
from bitgnn.nn.edge_features import graph_scores_of_pairs, ordered_features
from bitgnn.ops.linear import MOST_FEATURES
from bitgnn.quantize import sgn
from bitgnn.quantize.looked_up_linear import output_affine

MOST_GROWTH = 4
"""Columns of float sums of a layer's input, a column of its result, up to which they come first."""


def lower_attention(
    name: str, layer: Any, letters: Any, value: Value, spec: GraphSpec, edge_attr: Any = None
) -> Value:
    """A GATConv or GATv2Conv of this package in a binary form, perhaps with features of edges.

    The value of kind ``"attend"`` takes the signs of its inputs: of messages, and of projections of
    sources and destinations where scores are those of pairs of bits. Terms of the scores that each
    edge has of its own are its last input, in floats.
    """
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
    edge = None
    if edge_attr is not None:
        edge = _edge_terms(name, layer, edge_attr, sides if is_v2 else (), spec)
        spec = replace(spec, kind="edges")
    if letters.bspmm[0] == "B":
        bias = layer._operator_bias()
        tensors = _pair_tensors(layer) if is_v2 else named(score_weight=layer.score_weight())
        inputs = (sides[0], *sides) if is_v2 else sides[:1]
        out = _attend(layer, name, inputs, spec, False, {**tensors, **named(bias=bias)}, edge)
        if not layer.concat:
            weight = mean_weight(layer.heads, layer.out_channels, linear.weight.detach().float())
            out = Value(
                "linear", _map_of(name, layer), (out,), weight.size(0), tensors=named(weight=weight)
            )
        rest = None if layer.concat and layer.res is None else layer.bias
    else:
        out = _sums_first(name, layer, letters, prepared, linear, spec, sides, edge)
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


def _edge_terms(
    name: str, layer: Any, edge_attr: Value | Part, sides: tuple[Value, ...], spec: GraphSpec
) -> Value:
    """Terms of the scores ``[E, H]`` in the order of the graph's entries; all of them of pairs."""
    inputs = () if isinstance(edge_attr, Part) else (edge_attr,)
    given = Input(edge_attr.name if isinstance(edge_attr, Part) else 0)
    options = spec.add_self_loops, spec.flow
    place = f"{name}.edge_attr"
    args: tuple[Any, ...] = (
        Input(NODES),
        Input(EDGE_INDEX),
        given,
        options[0],
        layer.fill_value,
        options[1],
    )
    features = _of_edges(place, inputs, ordered_features, args, layer.edge_dim)
    if not sides:
        heads, channels = layer.heads, layer.out_channels
        weight = layer.lin_edge.weight.detach().view(heads, channels, -1)
        folded = (layer.att_edge.detach().view(heads, channels, 1) * weight).sum(1)
        tensors = named(weight=folded)
        return Value("edge_scores", name, (features,), heads, tensors=tensors, needs_edges=True)
    biases = layer.lin_l.bias, layer.lin_r.bias
    if biases[0] is not None:
        pairs = zip(sides, biases, strict=True)
        sides = tuple(function_of(name, "bias", side, named(bias=own)) for side, own in pairs)
    att = layer.att.detach().view(layer.heads, layer.out_channels)
    last = layer.lin_edge.weight.detach(), att, float(layer.negative_slope), *options
    args = (Input(0), Input(1), Input(EDGE_INDEX), Input(2), *last)
    return _of_edges(name, (*sides, features), graph_scores_of_pairs, args, layer.heads)


def _of_edges(
    name: str, inputs: tuple[Value, ...], function: Any, args: tuple[Any, ...], size: int
) -> Value:
    """Rows of the entries of a graph, as a function of this package gives them."""
    call = FloatCall(name, function, args, {}, size)
    form = {"form": "edges"}
    return Value("call", name, inputs, size, attributes=form, call=call, needs_edges=True)


def _attend(
    layer: Any,
    name: str,
    inputs: tuple[Value, ...],
    spec: GraphSpec,
    shared: bool,
    tensors: dict[str, Tensor],
    edge: Value | None,
) -> Value:
    size = inputs[0].size
    assert size is not None
    options = {"heads": layer.heads, "shared": shared, "has_edges": edge is not None}
    if edge is not None and len(inputs) > 1:  # which says all of the scores
        inputs, tensors = inputs[:1], {n: t for n, t in tensors.items() if n == "bias"}
    elif len(inputs) == 1:
        options["negative_slope"] = float(layer.negative_slope)
    inputs = inputs if edge is None else (*inputs, edge)
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
    edge: Value | None,
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
    out = _attend(layer, name, inputs, spec, True, tensors, edge)
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


def lower_transformer(name: str, layer: Any, value: Value, plan: Planned) -> Value:
    """A TransformerConv of this package whose messages are signs; queries and keys are floats."""
    if not layer.has_bits:
        raise Unsupported("its messages are floats")
    if layer.lin_beta is not None:
        raise Unsupported("its gate has no form in frozen models")
    if not isinstance(layer.in_channels, int):
        raise Unsupported("sources and destinations have maps of their own")

    def mapped(part: str) -> Value:
        return lower_linear(f"{name}.{part}", getattr(layer, part), value, plan)

    query, key, messages = map(mapped, ("lin_query", "lin_key", "lin_value"))
    assert query.size is not None
    divisor = torch.full((query.size,), math.sqrt(layer.out_channels), dtype=torch.float32)
    query = function_of(name, "divisor", query, {"divisor": divisor})
    spec = GraphSpec(
        "neighbours", "add", False, False, False, layer.flow, False, uses_sparse_values=False,
        uses_columns=False,
    )  # fmt: skip
    options = {"heads": layer.heads, "shared": False, "has_edges": False, "of_rows": True}
    inputs = (function_of(name, "sign", messages), query, key)
    out = Value("attend", name, inputs, messages.size, attributes=options, spec=spec)
    if not layer.concat:
        weight = mean_weight(layer.heads, layer.out_channels, divisor)
        out = Value("linear", name, (out,), weight.size(0), tensors=named(weight=weight))
    if layer.root_weight:
        out = Value("add", name, (out, mapped("lin_skip")), out.size)
    return out
