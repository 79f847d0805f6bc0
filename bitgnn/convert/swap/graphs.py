"""Graph layers and linear ones in other precisions with the same weights: swapped, or planned."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch_geometric.nn
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import Aggregation

import bitgnn.nn
from bitgnn.convert.configs import NAMED, GraphConfig, Precision
from bitgnn.convert.handlers import handles
from bitgnn.convert.network.graph_rows import SUPPORTED, row_of
from bitgnn.convert.network.layers import letters_of
from bitgnn.convert.plan import tunable_layers
from bitgnn.convert.reporting import BinarizeReport, spelled
from bitgnn.convert.swap.keeping import (
    COMPOSED,
    LINEAR,
    OWN,
    carry_over,
    carry_tree,
    copied,
    left_alone,
    unchanged,
    why_float,
)
from bitgnn.convert.swap.own_layers import WHY, take_float_sums, take_own_messages
from bitgnn.convert.swap.relu import relu_warnings, replace_activations
from bitgnn.convert.walker import check_names, is_inside, outermost, put_everywhere
from bitgnn.nn import LayerPrecision, rgcn_conv
from bitgnn.nn.binary_product import BinaryProduct
from bitgnn.nn.gin_conv import first_linear, why_not_binary
from bitgnn.nn.precision import NORM_OPTIONS, PRODUCT_OPTIONS
from bitgnn.nn.propagation import base

INNER = "a linear layer that a graph layer or another layer surrounds"
"""Why linear layers are binary that nobody named."""
LEAST_INPUTS = 16
"""Inputs of a linear layer from which on it becomes binary unasked."""
PLAIN_AGGREGATIONS = ("add", "sum", "mean", "min", "max", "mul")


@runtime_checkable
class HasPrecision(Protocol):
    """A whole model that knows its own binary forms, as those of ``bitgnn.models`` do."""

    precision: str

    def with_precision(self, precision: Any) -> nn.Module:
        """A copy with the same weights in another precision."""


class Unswappable(ValueError):
    """A layer that no binary one can take the place of; the message says why."""


@handles("binarize", GraphConfig)
def binarize_graph_layers(
    model: nn.Module, config: GraphConfig
) -> tuple[nn.Module, BinarizeReport]:
    """The swapped copy of a model and the report; see :func:`bitgnn.binarize`."""
    if isinstance(model, HasPrecision) and not (config.layers or config.skip or config.linear):
        return _in_own_form(model, config)
    by_name = isinstance(config.precision, str) and config.precision in NAMED

    def is_known(module: nn.Module) -> bool:
        return isinstance(module, (*SUPPORTED, *LINEAR)) or (by_name and is_composed(module))

    known = outermost(model, is_known)
    # Every name of a module that has several stands for its first one.
    first: dict[int, str] = {}
    names = {
        name: first.setdefault(id(module), name)
        for name, module in model.named_modules(remove_duplicate=False)
    }
    skip = dict.fromkeys((names.get(name, name) for name in config.skip), "named in skip")
    asked = {names.get(name, name): precision for name, precision in config.layers.items()}
    check_names({*asked, *skip}, known)
    reasons = {name: why_float(layer) for name, layer in known.items() if name not in skip}
    kept = {name: reason for name, reason in reasons.items() if reason is not None}
    refused = [name for name in kept if name in asked]
    if refused:
        raise ValueError(f"binarize: layer {refused[0]!r} cannot be binary: {kept[refused[0]]}")
    able = {name: layer for name, layer in known.items() if name not in {**skip, **kept}}
    precisions: dict[str, Precision] = {}
    why: dict[str, str] = {}
    parents = {id(child): module for module in model.modules() for child in module.children()}
    aggregations = [name for name, m in model.named_modules() if isinstance(m, Aggregation)]
    # Graph layers first.
    for name, layer in sorted(able.items(), key=lambda item: isinstance(item[1], LINEAR)):
        given = _assigned(name, layer, asked, config)
        if given is not None and not (given[1] == INNER and is_inside(name, aggregations)):
            precisions[name], why[name] = given
    result = copied(model)
    for name, precision in dict(precisions).items():
        try:
            result = swapped_layer(result, name, precision, config.dropout)
            if why[name] == INNER:
                in_graph_layer = isinstance(parents.get(id(able[name])), MessagePassing)
                swapped: Any = result.get_submodule(name)
                swapped.choose_by_place(ends_in_floats=not in_graph_layer)
        except Unswappable as error:  # one layer never stops the model
            if name in asked:
                raise ValueError(f"binarize: layer {name!r} cannot be binary: {error}") from error
            kept[name] = str(error)
            del precisions[name], why[name], able[name]
    if not precisions:
        return unchanged(result, able, {**skip, **kept})
    if by_name:
        take_float_sums(result, str(config.precision))
        own = take_own_messages(result, config.precision == "bin")
        precisions |= dict.fromkeys(own, config.precision)
        why |= dict.fromkeys(own, WHY)
    replaced = replace_activations(result, config.activation)
    composed = [name for name in precisions if is_composed(model.get_submodule(name))]
    swapped = {
        name: str(getattr(result.get_submodule(name), "precision", precision))
        for name, precision in precisions.items()
    }
    for name, module in result.named_modules():
        if isinstance(module, BinaryProduct) and name not in swapped and is_inside(name, composed):
            swapped[name], why[name] = str(module.precision), "part of a graph layer"
    graph_layers = [name for name, layer in known.items() if not isinstance(layer, LINEAR)]
    left = {**left_alone(result, precisions, graph_layers), **skip, **kept}
    warned = relu_warnings(result)
    return result, BinarizeReport(swapped, left, warned, replaced, why)


def _in_own_form(model: Any, config: GraphConfig) -> tuple[nn.Module, BinarizeReport]:
    """A model that knows its own binary forms in another precision."""
    if config.dropout or config.activation != "keep":
        raise ValueError(
            "binarize: dropout and activation must keep their defaults for a model that changes "
            f"form as a whole, got {config.dropout!r} and {config.activation!r} for "
            f"{type(model).__name__}"
        )
    result = carry_tree(model, model.with_precision(config.precision))
    layers = outermost(result, lambda module: isinstance(module, SUPPORTED))
    swapped = {name: str(layer.precision) for name, layer in layers.items()}
    reasons = dict.fromkeys(swapped, f"the model's own form of {config.precision!r}")
    left = left_alone(result, swapped, swapped)
    return result, BinarizeReport(swapped, left, (), reasons=reasons)


def _assigned(
    name: str, layer: nn.Module, asked: Mapping[str, Precision], config: GraphConfig
) -> tuple[Precision, str] | None:
    """Precision of a layer and why it has that one; None where it stays in floats.

    Layers of precision "bin" and "full" find their role and their input's bits themselves.
    """
    is_linear = isinstance(layer, LINEAR)
    if name in asked:
        given = asked[name]
        if isinstance(given, str) and given in NAMED:
            return given, "named in layers"
        parse = LayerPrecision.parse_linear if is_linear else LayerPrecision.parse
        try:
            return parse(given), "named in layers"
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"binarize: layers[{name!r}]: {error}") from error
    if not is_linear:
        if config.precision in NAMED:
            return config.precision, "precision of the model"
        precision = LayerPrecision.parse(config.precision)
        return precision, f"{str(precision)!r} of the model"
    if config.precision in NAMED:
        if config.linear is None:
            return (config.precision, INNER) if _is_wide(layer) else None
        return (config.precision, "linear=True") if config.linear else None
    if not config.linear:
        return None
    # Floats out: a sign behind them becomes a threshold when the model is frozen.
    letters = LayerPrecision.parse(config.precision)
    return LayerPrecision.parse_linear(f"{letters.bmm[:2]}F"), "linear=True"


def _is_wide(layer: Any) -> bool:
    """True if bits of a linear layer are worth their norm: not those of gates or a few columns."""
    outputs, inputs = layer.weight.shape
    return inputs >= LEAST_INPUTS and outputs > 1


def swapped_layer(model: nn.Module, name: str, precision: Precision, dropout: float) -> nn.Module:
    """Put a layer of another precision with the same parameters in the place of one.

    The model changes in place, and is the new layer where it was the old one itself.
    """
    layer: Any = model.get_submodule(name)
    new: Any
    chosen: dict[str, Any] = {"precision": precision, "dropout": dropout}
    kind = base.kind_of(layer)
    if kind is not None and isinstance(precision, str):
        layer.__class__ = kind
        layer.become(precision, dropout)
        return model
    if isinstance(layer, torch_geometric.nn.RGCNConv):
        names = (
            "in_channels", "out_channels", "num_relations", "num_bases", "num_blocks", "is_sorted",
            "flow",
        )  # fmt: skip
        options = {name: getattr(layer, name) for name in names}
        is_fast = isinstance(layer, torch_geometric.nn.FastRGCNConv)
        new = (bitgnn.nn.FastRGCNConv if is_fast else bitgnn.nn.RGCNConv)(
            **options, root_weight=layer.root is not None, bias=layer.bias is not None,
            aggr=layer.aggr, **chosen,
        )  # fmt: skip
        new.load_state_dict(layer.state_dict(), strict=False)
        new.to(layer.weight.device, layer.weight.dtype)
        return put_everywhere(model, layer, carry_over(layer, new))
    if is_composed(layer) and isinstance(layer, torch_geometric.nn.TransformerConv):
        new = bitgnn.nn.TransformerConv(
            layer.in_channels, layer.out_channels, layer.heads, layer.concat, layer.beta,
            layer.dropout, layer.edge_dim, layer.lin_key.bias is not None, layer.root_weight,
            precision, aggr=layer.aggr, flow=layer.flow,
        )  # fmt: skip
        tensor = layer.lin_key.weight
        return put_everywhere(model, layer, carry_over(layer, new.to(tensor.device, tensor.dtype)))
    if is_composed(layer):
        trains = isinstance(layer.eps, nn.Parameter)
        chosen |= {"aggr": layer.aggr, "flow": layer.flow, "node_dim": layer.node_dim}
        new = bitgnn.nn.GINConv(layer.nn, layer.initial_eps, trains, **chosen)
        new.eps = layer.eps
        return put_everywhere(model, layer, carry_over(layer, new))
    if isinstance(layer, LINEAR):
        inputs = getattr(layer, "in_channels", None) or layer.in_features
        outputs = getattr(layer, "out_channels", None) or layer.out_features
        new = bitgnn.nn.Linear(inputs, outputs, layer.bias is not None, **chosen)
        new.adds_bias = getattr(layer, "adds_bias", True)
    else:
        plain = layer.aggr in PLAIN_AGGREGATIONS
        aggr = layer.aggr if plain else copy.deepcopy(layer.aggr_module)
        chosen |= {"aggr": aggr, "flow": layer.flow, "node_dim": layer.node_dim}
        new = row_of(layer).binary_form(layer, **chosen)
    missing, unexpected = new.load_state_dict(layer.state_dict(), strict=False)
    # A child that the new layer does not use, such as the map of the root where another layer
    # adds it, is carried over as it is.
    carried = tuple(f"{name}." for name, _ in layer.named_children() if not hasattr(new, name))
    lost = [key for key in [*missing, *unexpected] if not key.startswith((*OWN, *carried))]
    if lost:
        raise Unswappable(f"{type(layer).__name__} has other tensors than PyG's: {lost}")
    tensor = next(iter(layer.parameters()))
    new.to(tensor.device, tensor.dtype)
    return put_everywhere(model, layer, carry_over(layer, new))


def is_composed(layer: nn.Module) -> bool:
    """True if a layer becomes one whose parts are binary: of attention, sums, or propagation."""
    if base.kind_of(layer) is not None:
        return (
            base.has_maps(layer) and why_float(layer) is None and base.why_not_binary(layer) is None
        )
    if isinstance(layer, torch_geometric.nn.RGCNConv):
        return why_float(layer) is None and rgcn_conv.why_not_binary(layer) is None
    if not isinstance(layer, COMPOSED) or why_float(layer) is not None:
        return False
    if isinstance(layer, torch_geometric.nn.TransformerConv):
        return type(layer.aggr_module) is torch_geometric.nn.SumAggregation
    first = first_linear(layer.nn)
    return first is not None and why_float(first) is None and why_not_binary(layer) is None


def own_letters(model: nn.Module) -> dict[str, str]:
    """Letters of a model's tunable layers as plans have them; those of PyG are floats.

    Whether the first layer's weights are 8-bit or binary follows from its input: in a plan B stands
    for both.
    """
    return {
        name: spelled(m, letters_of(m, {})).replace("FI", "FB", 1)
        for name, m in tunable_layers(model).items()
    }


def with_letters(
    model: nn.Module,
    letters: Mapping[str, str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> nn.Module:
    """A copy of a model with other letters, to be trained or to compare a frozen model with.

    Weights, biases and statistics are kept. Models of ``bitgnn.models`` change form as
    :meth:`~bitgnn.models.base.NodeModel.with_precision` says; elsewhere layers are swapped and the
    code between them stays. ``options`` are further fields of :class:`~bitgnn.nn.LayerPrecision`
    by layer name, such as norms, which start afresh.
    """
    own, added = own_letters(model), options or {}
    letters = {**own, **letters}
    changed = [name for name in letters if letters[name] != own[name] or added.get(name)]
    if not changed:
        return copy.deepcopy(model)
    layers = tunable_layers(model)
    if isinstance(model, HasPrecision):
        return model.with_precision(
            [
                replace(_trained(layer, letters[name]), **added.get(name, {}))
                for name, layer in layers.items()
                if isinstance(layer, MessagePassing)
            ]
        )
    result = copy.deepcopy(model)
    for name in changed:
        layer = layers[name]
        precision = replace(with_options(layer, letters[name]), **added.get(name, {}))
        result = swapped_layer(result, name, precision, getattr(layer, "dropout", 0.0))
    return result


def planned_form(
    model: nn.Module, letters: Mapping[str, str]
) -> tuple[nn.Module, dict[str, LayerPrecision]]:
    """The model to trace for these letters, and the layers whose precision its trace lacks.

    A model that knows its own binary forms decides by its letters what stands between layers, so
    it is made anew; any other one keeps its code.
    """
    own, layers = own_letters(model), tunable_layers(model)
    wanted = {name: text for name, text in letters.items() if text != own[name]}
    if wanted and isinstance(model, HasPrecision):
        graph_layers = [name for name, m in layers.items() if isinstance(m, MessagePassing)]
        model = model.with_precision(
            [_trained(layers[name], wanted.get(name, own[name])) for name in graph_layers]
        )
        wanted = {name: text for name, text in wanted.items() if name not in graph_layers}
    return model, {name: with_options(layers[name], text) for name, text in wanted.items()}


def with_options(layer: nn.Module, precision: Precision) -> LayerPrecision:
    """Letters of a plan with the options the layer has, since its norms exist or not.

    Looked-up bits stay where the product takes bits and binary weights, and 8-bit rows are what
    such letters mean of a layer on dense features; other letters take the input itself.
    """
    is_graph = isinstance(layer, MessagePassing)
    planned = (LayerPrecision.parse if is_graph else LayerPrecision.parse_linear)(precision)
    own = getattr(layer, "letters", None)
    if not isinstance(own, LayerPrecision) or planned.is_float:
        return planned
    letters: dict[str, Any] = {"bmm": planned.bmm, "bspmm": planned.bspmm}
    if own.looks_up and planned.bmm[:2] not in ("FB", "BB", "FI"):
        letters |= {"inputs": "sign", "order": "transform_first", "shortcut": False}
    elif own.takes_rows:
        letters["bmm"] = f"FI{planned.bmm[2]}"
    elif planned.takes_rows:
        raise ValueError(
            f"freeze: letters {planned.pair!r} are for a layer that was trained on 8-bit rows, got "
            f"a {type(layer).__name__} trained with {own.pair!r}"
        )
    return replace(own, **letters)


def _trained(layer: nn.Module, letters: str) -> LayerPrecision:
    """Letters with those of the layer's options that the model does not settle by itself."""
    planned, own = LayerPrecision.parse(letters), letters_of(layer, {})
    if planned.is_float_linear or own.is_float_linear:
        return planned
    options = {name: own.options[name] for name in (*NORM_OPTIONS, *PRODUCT_OPTIONS)}
    if planned.bmm[2] != "B" and not planned.sum_letter.level:
        del options["hidden_norm"]
    return replace(planned, **options)  # type: ignore[arg-type]
