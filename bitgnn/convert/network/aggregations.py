"""Rules of the functions that aggregate neighbours: the graphs and sums that frozen models have."""

from __future__ import annotations

from dataclasses import replace
from inspect import unwrap
from typing import Any

from torch import Tensor

from bitgnn.convert.network.tracer import NotTraced
from bitgnn.convert.network.values import Part, Unsupported, Value, is_unit
from bitgnn.inference.graph import GraphSpec
from bitgnn.inference.own_code.calls import FloatCall, Input
from bitgnn.nn.gine_conv import sums_beside_edges
from bitgnn.nn.propagation.reductions import (
    aggregate,
    extreme_of_sums,
    neighbour_sums,
    propagation_graph,
)

READY = "a frozen model takes it ready"


def _graph(
    name: str, x: Any, edge_index: Any, edge_weight: Any = None, **options: Any
) -> GraphSpec:
    """How the graph of a propagation is made."""
    if not isinstance(edge_index, Part) or not isinstance(edge_weight, Part | None):
        raise NotTraced(f"freeze: {name} is given a graph that the forward computes; {READY}")
    return GraphSpec(**{"normalize": True, "add_self_loops": False, **options},
                     weighted=edge_weight is not None)  # fmt: skip


def _sums(name: str, x: Any, graph: Any, are_signs: bool = False) -> Value:
    """Float sums, or those of bits."""
    if not isinstance(x, Value) or not isinstance(graph, GraphSpec):
        raise Unsupported(READY)
    return Value("aggregate", name, (x,), x.size, spec=graph)


def _aggregate(
    name: str, x: Any, graph: Any, reduce: str = "sum", edge_weight: Any = None
) -> Value:
    """Sums and means; extremes of signs without weights."""
    if not isinstance(x, Value) or not isinstance(graph, Part):
        raise Unsupported(READY)
    if not isinstance(edge_weight, Part | None):
        raise Unsupported(READY)
    spec = GraphSpec(
        kind="neighbours", add_self_loops=False, normalize=False, weighted=edge_weight is not None
    )
    if reduce in ("sum", "mean"):
        spec = replace(spec, reduction="add" if reduce == "sum" else "mean")
        return Value("aggregate", name, (x,), x.size, spec=spec)
    if reduce not in ("max", "min") or spec.weighted or not is_unit(x):
        raise Unsupported("only signs without weights have a maximum or minimum by popcounts")
    plain = replace(spec, uses_sparse_values=False)
    sums = Value("aggregate", f"{name}.sums", (x,), x.size, spec=plain)
    call = FloatCall(name, extreme_of_sums, (Input(0), Input(graph.name), reduce), {}, x.size)
    return Value("call", name, (sums,), x.size, call=call, needs_edges=True)


def _beside_edges(
    name: str, x: Any, graph: Any, edge_attr: Any, factor: Tensor, flow: str
) -> Value:
    """Float sums of messages with features of edges in them."""
    if not isinstance(x, Value) or not isinstance(graph, Part):
        raise Unsupported(READY)
    inputs = (x, edge_attr) if isinstance(edge_attr, Value) else (x,)
    edges = Input(1) if isinstance(edge_attr, Value) else Input(edge_attr.name)
    args = (Input(0), Input(graph.name), edges, factor, flow)
    call = FloatCall(name, unwrap(sums_beside_edges), args, {}, x.size)
    return Value("call", name, inputs, x.size, call=call, needs_edges=True)


FUNCTIONS: dict[Any, Any] = {
    unwrap(sums_beside_edges): _beside_edges,
    unwrap(propagation_graph): _graph,
    unwrap(neighbour_sums): _sums,
    unwrap(aggregate): _aggregate,
}
"""Rules by function."""
