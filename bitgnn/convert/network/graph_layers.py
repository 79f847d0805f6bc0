"""Values of graph layers: products of neighbours and node, and sums over the adjacency."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

import bitgnn.nn
from bitgnn.convert.network.attention_layers import lower_attention
from bitgnn.convert.network.graph_rows import (
    RELATIONS,
    SUM,
    SUPPORTED,
    AttentionRow,
    GraphLayer,
    row_of,
)
from bitgnn.convert.network.int8_rows import is_rows
from bitgnn.convert.network.layers import (
    FLOAT,
    Planned,
    letters_of,
    looked_up_bits,
    looked_up_product,
    prepare,
    product,
    scale_of,
    weight_of,
)
from bitgnn.convert.network.tracer import NotTraced
from bitgnn.convert.network.values import (
    Part,
    Unsupported,
    Value,
    batch_norm,
    function_of,
    named,
    nodes_of,
    with_size,
)
from bitgnn.inference.graph import GraphSpec
from bitgnn.nn import RGCNConv
from bitgnn.nn.gcn_conv import OWN_BITS
from bitgnn.nn.propagation.base import Propagation
from bitgnn.nn.sum_linear import SumLinear

_OWNERS = ("torch_geometric.", "bitgnn.nn")
_MESSAGES = (
    "forward", "message", "aggregate", "message_and_aggregate", "update", "edge_update"
)  # fmt: skip


def _sides(name: str, arguments: Mapping[str, Any], edge_type: int | None) -> tuple[Value, Value]:
    """Features of sources and destinations, one value where both are the same nodes."""
    value = arguments["x"]
    if arguments.get("size") is not None:
        raise NotTraced(f"freeze: layer {name!r} is given size=, for a bipartite graph")
    if not isinstance(value, tuple | list):
        return value, value
    if edge_type is None:
        sides = {id(side): side for side in value if side is not None}
        if len(sides) != 1 or value[0] is None:
            raise NotTraced(
                f"freeze: layer {name!r} is given a bipartite pair of features; a frozen model "
                "has one set of nodes"
            )
        return value[0], value[0]
    if len(value) != len(("sources", "destinations")) or not all(
        isinstance(side, Value) for side in value
    ):
        raise NotTraced(
            f"freeze: layer {name!r} is given no features of both sources and destinations"
        )
    return value[0], value[1]


def _between(spec: GraphSpec, sides: tuple[Value, Value], edge_type: int | None) -> GraphSpec:
    """The adjacency between the nodes of both sides."""
    if edge_type is None:
        return spec
    sources, destinations = map(nodes_of, sides)
    if sources != destinations and (spec.kind == "gcn" or spec.flow != "source_to_target"):
        raise Unsupported("its sources and destinations are different nodes")
    return replace(spec, edge_type=edge_type, destinations=destinations, sources=sources)


def lower_graph_layer(
    name: str,
    layer: Any,
    arguments: Mapping[str, Any],
    weighted: bool,
    plan: Planned,
    edge_type: int | None = None,
) -> Value:
    """A graph layer of PyG or this package; ``edge_type`` numbers its graph among several."""
    value, node = sides = _sides(name, arguments, edge_type)
    letters, row = letters_of(layer, plan), row_of(layer)
    spec = _between(_adjacency(layer, row, letters, weighted), sides, edge_type)
    if isinstance(row, AttentionRow):
        # Without a map of theirs features of edges act on nothing: PyG's GAT hands them on.
        edge_attr = arguments.get("edge_attr") if layer.lin_edge is not None else None
        if letters.is_float:
            raise Unsupported("its attention is in floats")
        if arguments.get("return_attention_weights"):
            raise Unsupported("it is asked for its coefficients")
        if edge_attr is not None and not isinstance(edge_attr, Value | Part):
            raise Unsupported("its features of edges are constants")
        if node is not value or (edge_attr is not None and edge_type is not None):
            raise Unsupported("its sources and destinations are different nodes")
        plain = replace(spec, weighted=False, keeps_weights=False, uses_columns=False)
        return lower_attention(name, layer, letters, value, plain, edge_attr)
    if letters.is_float:
        return _lower_float(name, row, layer, value, node, spec)
    linear, root = row.maps(layer)
    if letters.looks_up and getattr(layer, "input_bits", None) is None:
        raise ValueError(
            f"freeze: layer {name!r} has looked up no bits; train it with this precision"
        )
    source = prepare(name, layer, letters, value)
    prepared = source if node is value else prepare(name, layer, letters, node)
    if getattr(layer, "project", False):
        source = prepare(name, layer, letters, _projected(name, layer, value))
    # A layer of named precision has a norm whether or not its role uses it.
    hidden = None if letters.hidden_norm is None else getattr(layer, "hidden_norm", None)
    scale = scale_of(name, layer, "input_quantizer", letters.input_letter)
    if letters.looks_up:
        z = looked_up_product(name, layer, letters, source, linear)
    else:
        weight = weight_of(linear, name)
        z = product(name, letters, source, weight, takes_sign_of_dot=hidden is None, scale=scale)
        if hidden is not None:
            z = batch_norm(f"{name}.hidden_norm", hidden, z)
    if letters.bmm[2] == "B":
        z = function_of(name, "sign", z)
    hidden_scale = scale_of(name, layer, "hidden_quantizer", letters.sum_letter)
    tensors = named(bias=row.bias_of(layer), scale=hidden_scale)
    kind = f"{letters.sum_letter.kind}aggregate"
    out = Value(kind, name, (z,), z.size, tensors=tensors, spec=spec)
    if getattr(layer, "has_shortcut", False):
        own = function_of(name, "sign", looked_up_bits(name, layer, prepared))
        own = function_of(name, "scale", own, factor=OWN_BITS)
        out = Value("add", name, (out, own), out.size)
    if root is not None and letters.looks_up:
        out = looked_up_product(name, layer, letters, prepared, root, out)
    elif root is not None:
        weight = weight_of(root, name)
        out = product(name, letters, prepared, weight, addend=out, scale=scale)
    output = getattr(layer, "output_norm", None)
    if output is not None:
        out = batch_norm(f"{name}.output_norm", output, out)
    if letters.bspmm[2] == "B":
        return function_of(name, "sign", out)  # which notices no L2 normalisation
    return _normalized(name, row, layer, out)


def lower_sum(
    name: str,
    layer: SumLinear,
    arguments: Mapping[str, Any],
    plan: Planned,
    edge_type: int | None = None,
) -> Value:
    """A linear map of neighbours' sums and the node's own features."""
    value, node = sides = _sides(name, arguments, edge_type)
    letters, eps = letters_of(layer, plan), arguments.get("eps")
    spec = _between(_adjacency(layer, SUM, letters, weighted=False), sides, edge_type)
    z = looked_up_product(name, layer, letters, value, layer)
    tensors = named(bias=layer.bias)
    out = Value("aggregate", name, (z,), z.size, tensors=tensors, spec=spec)
    if isinstance(eps, Tensor):
        layer.hold_factor(eps)
        out = looked_up_product(name, layer, letters, node, layer, out)
    if letters.output_norm is not None:
        out = batch_norm(f"{name}.output_norm", layer.output_norm, out)
    return out


def lower_relations(name: str, layer: RGCNConv, arguments: Mapping[str, Any]) -> Value:
    """The products of all relations side by side, one sum over the edges, the node's own."""
    value = arguments["x"]
    letters = letters_of(layer, {})
    if letters.is_float or not layer.looks_at_features or not isinstance(value, Value):
        raise Unsupported("its rows are looked up, or in floats")
    spec = replace(
        _adjacency(layer, RELATIONS, letters, weighted=True),
        relations=layer.num_relations, keeps_weights=False, uses_columns=True,
    )  # fmt: skip
    size = layer.out_channels
    if layer.num_blocks is None or is_rows(layer.input_bits):
        z = looked_up_product(name, layer, letters, value, layer.relation_map)
    else:
        halves = (looked_up_product(name, layer, letters, value, h) for h in layer.halves)
        z = Value("add", name, tuple(halves), size * layer.num_relations)
        z = function_of(name, "scale", z, factor=0.5)
    z = Value("relations", name, (z,), size, attributes={"rows": [-1, size], "out": size})
    out = Value("aggregate", name, (z,), size, tensors=named(bias=layer.bias), spec=spec)
    if layer.root is not None:
        out = looked_up_product(name, layer, letters, value, layer.root_map, out)
    if letters.output_norm is not None:
        out = batch_norm(f"{name}.output_norm", layer.output_norm, out)
    return out


def _adjacency(layer: Any, row: GraphLayer, letters: Any, weighted: bool) -> GraphSpec:
    reduction = {SumAggregation: "add", MeanAggregation: "mean"}.get(type(layer.aggr_module))
    if reduction is None:
        raise Unsupported(f"aggr={layer.aggr!r} is neither a sum nor a mean")
    own = next(kind for kind in type(layer).__mro__ if kind.__module__.startswith(_OWNERS))
    overrides = any(
        inspect.getattr_static(type(layer), method, None)
        is not inspect.getattr_static(own, method, None)
        for method in _MESSAGES
    )
    if layer.node_dim not in (-2, 0) or overrides:
        raise Unsupported("its class overrides how messages are made")
    options: dict[str, Any] = dict.fromkeys(("add_self_loops", "improved", "normalize"), False)
    options |= {name: bool(getattr(layer, name)) for name in row.adjacency}
    sums_bits = letters.bspmm[0] == "B" or letters.order == "aggregate_first"
    has_columns = bool(row.adjacency) or weighted
    return GraphSpec(
        kind="gcn" if row.adjacency else "neighbours",
        reduction=reduction,  # type: ignore[arg-type]
        flow=layer.flow,
        weighted=weighted,
        uses_sparse_values=row.uses_sparse_values,
        keeps_weights=letters.bspmm[1] == "F",
        # Sums of bits know no column factor; where layers agree on that, they share a graph.
        uses_columns=not (letters.looks_up and sums_bits and has_columns),
        **options,
    )


def is_binary(module: nn.Module, plan: Planned) -> bool:
    """True if a layer computes with bits."""
    if isinstance(module, bitgnn.nn.BinaryLinear | bitgnn.nn.BinaryConv2d):
        return True
    kinds = (*SUPPORTED, bitgnn.nn.Linear, bitgnn.nn.GINConv, SumLinear, Propagation, RGCNConv)
    return isinstance(module, kinds) and not letters_of(module, plan).is_float


def has_binary_layers(model: nn.Module, plan: Planned) -> bool:
    """True if a layer of a model computes with bits."""
    return any(is_binary(module, plan) for module in model.modules())


def _projected(name: str, layer: Any, value: Value) -> Value:
    """SAGEConv's map of the neighbours in front of everything else."""
    y = product(name, FLOAT, value, weight_of(layer.lin, name), bias=layer.lin.bias)
    return function_of(name, "relu", y)


def _normalized(name: str, row: GraphLayer, layer: Any, out: Value) -> Value:
    normalizes = row.normalizes_rows and layer.normalize
    return function_of(name, "normalize", out) if normalizes else out


def _lower_float(
    name: str, row: GraphLayer, layer: Any, value: Value, node: Value, spec: GraphSpec
) -> Value:
    """PyG's own arithmetic with exact edge weights, in PyG's order."""
    linear, root = row.maps(layer)
    weight, bias = weight_of(linear, name), row.bias_of(layer)
    if row.transforms_first:
        y = product(name, FLOAT, value, weight)
        return Value("aggregate", name, (y,), y.size, tensors=named(bias=bias), spec=spec)
    source = _projected(name, layer, value) if getattr(layer, "project", False) else value
    source = with_size(source, weight.size(1), name)
    mean = Value("aggregate", name, (source,), source.size, spec=spec)
    out = product(name, FLOAT, mean, weight, bias=bias)
    if root is not None:
        own = product(name, FLOAT, node, weight_of(root, name))
        out = Value("add", name, (out, own), out.size)
    return _normalized(name, row, layer, out)
