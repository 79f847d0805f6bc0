"""What the layers compute, as values: products, aggregations and the functions around them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

import bitgnn.nn
from bitgnn.convert.looked_up import looked_up_bits, looked_up_product, narrowed_weight
from bitgnn.convert.values import Value, with_size
from bitgnn.inference.graph import GraphSpec
from bitgnn.nn import BinaryLinear, LayerPrecision, NodeStandardize
from bitgnn.nn.gcn_conv import OWN_BITS

__all__ = [
    "SUPPORTED",
    "Unsupported",
    "batch_norm",
    "function_of",
    "lower_graph_layer",
    "lower_linear",
    "named",
    "with_size",
]

SUPPORTED = (torch_geometric.nn.GCNConv, torch_geometric.nn.SAGEConv, torch_geometric.nn.GraphConv)
"""Graph layers with a frozen form; those of ``bitgnn.nn`` are subclasses."""

FLOAT = LayerPrecision.parse("fp32")
SIGNS = LayerPrecision.parse_linear("BBF")


class Unsupported(Exception):
    """This module computes something that only its own code can; the message says what."""


def letters_of(layer: nn.Module, plan: Mapping[int, LayerPrecision]) -> LayerPrecision:
    """Precision of a layer: that of the plan, its own, or full precision for one of PyG's."""
    own = getattr(layer, "letters", FLOAT)
    return plan.get(id(layer), own)


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().float().contiguous().clone()


def named(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Copies of tensors in float32, without those that are None."""
    return {name: _detached(t) for name, t in tensors.items() if t is not None}  # type: ignore[misc]


def _weight(linear: Any, name: str, layer: Any = None) -> Tensor:
    """The weight of a map, which may be one of a layer's, for products of the input itself."""
    if is_uninitialized_parameter(linear.weight):
        raise ValueError(
            f"freeze: layer {name!r} has no weight yet; run the model once so that it takes its "
            "width from the input"
        )
    return narrowed_weight(linear if layer is None else layer, linear)


def function_of(layer: str, name: str, value: Value, **attributes: Any) -> Value:
    """One of :data:`bitgnn.inference.steps.floats.FUNCTIONS` of a value."""
    return Value("function", layer, (value,), value.size, name, attributes)


def batch_norm(layer: str, norm: Any, value: Value) -> Value:
    """A batch norm in evaluation.

    Raises:
        Unsupported: it keeps no running statistics.
    """
    if norm.running_mean is None or norm.running_var is None:
        raise Unsupported("it keeps no running statistics, so it depends on the batch")
    tensors = named(
        mean=norm.running_mean, var=norm.running_var, weight=norm.weight, bias=norm.bias
    )
    attributes = {"eps": float(norm.eps)}
    value = with_size(value, norm.num_features, layer)
    return Value("function", layer, (value,), norm.num_features, "batch_norm", attributes, tensors)


def _sign(layer: str, value: Value) -> Value:
    return function_of(layer, "sign", value)


def _prepare(name: str, layer: Any, letters: LayerPrecision, value: Value) -> Value:
    """Input norm and hardtanh of a binary layer."""
    norm = getattr(layer, "input_norm", None)
    if isinstance(norm, NodeStandardize):
        value = function_of(f"{name}.input_norm", "standardize", value)
    elif norm is not None:
        value = batch_norm(f"{name}.input_norm", norm, value)
    if letters.hardtanh:
        value = function_of(name, "hardtanh", value, low=-1.0, high=1.0)
    return value


def _product(
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
    letters, weight = letters_of(layer, plan), _weight(layer, name)
    if isinstance(layer, BinaryLinear):
        if not layer.scale:
            raise Unsupported("its integers have no scale")
        return _product(name, SIGNS, value, weight, bias=layer.bias)
    if not isinstance(layer, bitgnn.nn.Linear):
        return _product(name, FLOAT, value, weight, bias=layer.bias)
    norms = (layer.hidden_norm, layer.output_norm)
    to_bits = letters.bmm[2] == "B"
    bare = layer.bias is None and norms == (None, None)
    hidden, output = norms
    first_bias = layer.bias if hidden is None else None
    out = _product(
        name,
        letters,
        _prepare(name, layer, letters, value),
        weight,
        bias=first_bias,
        takes_sign_of_dot=bare,
        scale=_scale(name, layer, "input_quantizer", letters.takes_ternary),
    )
    if hidden is not None:
        out = batch_norm(f"{name}.hidden_norm", hidden, out)
        if layer.bias is not None:
            out = Value("function", name, (out,), out.size, "bias", {}, named(bias=layer.bias))
    if output is not None:
        out = batch_norm(f"{name}.output_norm", output, out)
    return _sign(name, out) if to_bits else out


def lower_graph_layer(
    name: str,
    layer: Any,
    arguments: Mapping[str, Any],
    weighted: bool,
    plan: Mapping[int, LayerPrecision],
) -> Value:
    """A GCNConv, SAGEConv or GraphConv of PyG or this package.

    Args:
        name: module name.
        layer: the layer.
        arguments: of its forward, by name.
        weighted: whether edge weights are among them.
        plan: precisions that replace the layers' own, by ``id``.

    Raises:
        Unsupported: only PyG's own message passing can do what it does.
        ValueError: it cannot be part of a frozen model.
    """
    value = arguments["x"]
    if isinstance(value, tuple | list):
        sides = {id(side): side for side in value if side is not None}
        if len(sides) != 1 or value[0] is None:
            raise ValueError(
                f"freeze: layer {name!r} is given a bipartite pair of features; a frozen model "
                "has one set of nodes"
            )
        (value,) = sides.values()
    if arguments.get("size") is not None:
        raise ValueError(f"freeze: layer {name!r} is given size=, for a bipartite graph")
    reduction = {SumAggregation: "add", MeanAggregation: "mean"}.get(type(layer.aggr_module))
    if reduction is None:
        raise Unsupported(f"aggr={layer.aggr!r} is neither a sum nor a mean")
    if layer.node_dim not in (-2, 0) or _overrides(layer):
        raise Unsupported("its class overrides how messages are made")
    letters = letters_of(layer, plan)
    is_gcn = isinstance(layer, torch_geometric.nn.GCNConv)
    spec = GraphSpec(
        kind="gcn" if is_gcn else "neighbours",
        reduction=reduction,  # type: ignore[arg-type]
        add_self_loops=bool(layer.add_self_loops) if is_gcn else False,
        improved=bool(layer.improved) if is_gcn else False,
        normalize=bool(layer.normalize) if is_gcn else False,
        flow=layer.flow,
        weighted=weighted,
        reads_values=not isinstance(layer, torch_geometric.nn.SAGEConv),
        exact=letters.bspmm[1] == "F",
        # Sums of bits know no column factor; where layers agree on that, they share a graph.
        uses_columns=not (letters.looks_up and _sums_bits(letters) and (is_gcn or weighted)),
    )
    if letters.is_float:
        return _lower_float(name, layer, value, spec)
    linear, root = _linear_maps(layer)
    if letters.looks_up and getattr(layer, "input_bits", None) is None:
        raise ValueError(
            f"freeze: layer {name!r} has looked up no bits; train it with this precision"
        )
    prepared = _prepare(name, layer, letters, value)
    source = prepared
    if getattr(layer, "project", False):
        source = _prepare(name, layer, letters, _projected(name, layer, value))
    # A layer of named precision has a norm whether or not its role uses it.
    hidden = None if letters.hidden_norm is None else getattr(layer, "hidden_norm", None)
    scale = _scale(name, layer, "input_quantizer", letters.takes_ternary)
    weight = _weight(linear, name, layer)
    first = None
    if letters.looks_up:
        first = z = looked_up_product(name, layer, letters, source, linear)
    else:
        z = _product(name, letters, source, weight, takes_sign_of_dot=hidden is None, scale=scale)
        if hidden is not None:
            z = batch_norm(f"{name}.hidden_norm", hidden, z)
    if letters.bmm[2] == "B":
        z = _sign(name, z)
    bias = layer.bias if is_gcn else linear.bias
    hidden_scale = _scale(name, layer, "hidden_quantizer", letters.sums_ternary)
    tensors = named(bias=bias, scale=hidden_scale)
    kind: Any = "aggregate" if hidden_scale is None else "ternary_aggregate"
    out = Value(kind, name, (z,), z.size, tensors=tensors, spec=spec)
    if getattr(layer, "has_shortcut", False):
        own = _sign(name, looked_up_bits(name, layer, prepared))
        own = Value("function", name, (own,), own.size, "scale", {"factor": OWN_BITS})
        out = Value("add", name, (out, own), out.size)
    if root is not None and letters.looks_up:
        shared = first if source is prepared else None
        out = looked_up_product(name, layer, letters, prepared, root, shared, out)
    elif root is not None:
        weight = _weight(root, name, layer)
        out = _product(name, letters, prepared, weight, addend=out, scale=scale)
    output = getattr(layer, "output_norm", None)
    if output is not None:
        out = batch_norm(f"{name}.output_norm", output, out)
    if letters.bspmm[2] == "B":
        return _sign(name, out)
    return _normalized(name, layer, out)


def _sums_bits(letters: LayerPrecision) -> bool:
    return letters.bspmm[0] == "B" or letters.order == "aggregate_first"


def _scale(name: str, layer: Any, quantizer: str, is_ternary: bool) -> Tensor | None:
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


def _linear_maps(layer: Any) -> tuple[Any, Any]:
    """The map of the neighbours and that of the node itself, if any."""
    if isinstance(layer, torch_geometric.nn.GCNConv):
        return layer.lin, None
    if isinstance(layer, torch_geometric.nn.SAGEConv):
        return layer.lin_l, layer.lin_r if layer.root_weight else None
    return layer.lin_rel, layer.lin_root


def _projected(name: str, layer: Any, value: Value) -> Value:
    """SAGEConv's map of the neighbours in front of everything else."""
    y = _product(name, FLOAT, value, _weight(layer.lin, name), bias=layer.lin.bias)
    return function_of(name, "relu", y)


def _normalized(name: str, layer: Any, out: Value) -> Value:
    """SAGEConv's L2 normalisation, which no sign notices."""
    is_sage = isinstance(layer, torch_geometric.nn.SAGEConv)
    return function_of(name, "normalize", out) if is_sage and layer.normalize else out


def _lower_float(name: str, layer: Any, value: Value, spec: GraphSpec) -> Value:
    """PyG's own arithmetic: exact edge weights, and SAGE and GraphConv aggregate first."""
    linear, root = _linear_maps(layer)
    weight = _weight(linear, name, layer)
    if isinstance(layer, torch_geometric.nn.GCNConv):
        y = _product(name, FLOAT, value, weight)
        return Value("aggregate", name, (y,), y.size, tensors=named(bias=layer.bias), spec=spec)
    source = _projected(name, layer, value) if getattr(layer, "project", False) else value
    source = with_size(source, weight.size(1), name)
    mean = Value("aggregate", name, (source,), source.size, spec=spec)
    out = _product(name, FLOAT, mean, weight, bias=linear.bias)
    if root is not None:
        own = _product(name, FLOAT, value, _weight(root, name, layer))
        out = Value("add", name, (out, own), out.size)
    return _normalized(name, layer, out)


def _overrides(layer: Any) -> bool:
    """Whether a subclass changes the forward pass or the messages of the layer."""
    own = next(kind for kind in type(layer).__mro__ if kind.__module__.startswith(_OWNERS))
    names = ("forward", "message", "aggregate", "message_and_aggregate", "update", "edge_update")
    return any(
        inspect.getattr_static(type(layer), name, None)
        is not inspect.getattr_static(own, name, None)
        for name in names
    )


_OWNERS = ("torch_geometric.", "bitgnn.nn")
