"""Graph layers and linear ones swapped for binary ones, with the weights kept."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch_geometric.nn
from torch import nn
from torch_geometric.nn import MessagePassing

import bitgnn.nn
from bitgnn.convert.configs import NAMED, GraphConfig
from bitgnn.convert.network.graph_layers import SUPPORTED, row_of
from bitgnn.convert.network.layers import narrowed_weight
from bitgnn.convert.reporting import BinarizeReport
from bitgnn.convert.swap.keeping import (
    OWN,
    carry_over,
    carry_tree,
    copied,
    uncalled_hooks,
    why_float,
)
from bitgnn.convert.swap.relu import relu_warnings, replace_activations
from bitgnn.convert.walker import check_names, is_inside, outermost, put_everywhere
from bitgnn.nn import BinaryLinear, LayerPrecision

LINEAR = (nn.Linear, torch_geometric.nn.Linear)
PLAIN_AGGREGATIONS = ("add", "sum", "mean", "min", "max", "mul")


@runtime_checkable
class HasPrecision(Protocol):
    """A whole model that knows its own binary forms, as those of ``bitgnn.models`` do."""

    precision: str

    def with_precision(self, precision: Any) -> nn.Module:
        """A copy with the same weights in another precision."""


def binary_form(layer: Any, precision: str | LayerPrecision, dropout: float) -> nn.Module:
    """A binary layer with the options, parameters and hooks of another one.

    Weights of thermometers' bits become weights of features where the new layer takes no such bits.

    Returns:
        The new layer, whose parameters are the objects of ``layer``.

    Raises:
        ValueError: the layer has other tensors than PyG's.
    """
    new: nn.Module
    chosen = {"precision": precision, "dropout": dropout}
    if isinstance(layer, LINEAR):
        new = bitgnn.nn.Linear(
            getattr(layer, "in_channels", None) or layer.in_features,
            getattr(layer, "out_channels", None) or layer.out_features,
            layer.bias is not None,
            **chosen,  # type: ignore[arg-type]
        )
    else:
        plain = layer.aggr in PLAIN_AGGREGATIONS
        options = {
            "aggr": layer.aggr if plain else copy.deepcopy(layer.aggr_module),
            "flow": layer.flow,
            "node_dim": layer.node_dim,
            **chosen,
        }
        new = row_of(layer).binary_form(layer, **options)
    if not new.letters.looks_up:  # type: ignore[union-attr]
        for linear in (m for m in layer.modules() if isinstance(m, LINEAR)):
            linear.weight.data = narrowed_weight(layer, linear)
    missing, unexpected = new.load_state_dict(layer.state_dict(), strict=False)
    lost = [name for name in [*missing, *unexpected] if not name.startswith(OWN)]
    if lost:
        raise ValueError(f"binarize: {type(layer).__name__} has other tensors than PyG's: {lost}")
    tensor = next(iter(layer.parameters()))
    new.to(tensor.device, tensor.dtype)
    return carry_over(layer, new)


CONVOLUTIONS = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d,
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip


def binarize_graph_layers(
    model: nn.Module, config: GraphConfig
) -> tuple[nn.Module, BinarizeReport]:
    """The swapped copy of a model and the report; see :func:`bitgnn.binarize`.

    Raises:
        TypeError: a precision in ``config.layers`` is neither a string nor a LayerPrecision.
        ValueError: a name is no layer or of one that has to stay, or there is nothing to swap.
    """
    if isinstance(model, HasPrecision) and not (config.layers or config.skip or config.linear):
        return _in_own_form(model, config)
    known = outermost(model, lambda module: isinstance(module, (*SUPPORTED, *LINEAR)))
    config = _with_first_names(model, config)
    check_names({*config.layers, *config.skip}, known)
    reasons = {name: why_float(layer) for name, layer in known.items() if name not in config.skip}
    kept = {name: reason for name, reason in reasons.items() if reason is not None}
    refused = [name for name in kept if name in config.layers]
    if refused:
        raise ValueError(f"binarize: layer {refused[0]!r} cannot be binary: {kept[refused[0]]}")
    left = {**dict.fromkeys(config.skip, "named in skip"), **kept}
    able = {name: layer for name, layer in known.items() if name not in left}
    precisions, why = _assigned(config, able)
    if not precisions:
        raise ValueError(_nothing_to_swap(model, able, left))
    result = copied(model)
    for name, precision in precisions.items():
        result = swapped_layer(result, name, precision, config.dropout)
    replaced = replace_activations(result, config.activation)
    swapped = {name: str(result.get_submodule(name).precision) for name in precisions}
    graph_layers = [name for name, layer in known.items() if isinstance(layer, SUPPORTED)]
    left = {**_left(result, precisions, graph_layers), **left}
    warned = relu_warnings(result)
    for name in precisions:
        layer = known[name] if name in graph_layers else result.get_submodule(name)
        maps = uncalled_hooks(layer)
        if maps:
            what = f"hooks of {', '.join(maps)} in layer {name!r} are not called in binary products"
            warned = (*warned, what)
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
    left = _left(result, swapped, swapped)
    return result, BinarizeReport(swapped, left, (), reasons=reasons)


def _with_first_names(model: nn.Module, config: GraphConfig) -> GraphConfig:
    """The configuration with the first of the names of every module that has several."""
    first: dict[int, str] = {}
    names = {
        name: first.setdefault(id(module), name)
        for name, module in model.named_modules(remove_duplicate=False)
    }
    skip = tuple(names.get(name, name) for name in config.skip)
    layers = {names.get(name, name): letters for name, letters in config.layers.items()}
    return replace(config, skip=skip, layers=layers)


def _assigned(
    config: GraphConfig, able: Mapping[str, nn.Module]
) -> tuple[dict[str, str | LayerPrecision], dict[str, str]]:
    """Precision of each layer to swap and why it has that one, graph layers first.

    Layers of precision "bin" and "full" find their role and their input's bits themselves.
    """
    found: dict[str, str | LayerPrecision] = {}
    reasons: dict[str, str] = {}
    for name, layer in sorted(able.items(), key=lambda item: isinstance(item[1], LINEAR)):
        is_linear = isinstance(layer, LINEAR)
        if name in config.layers:
            given = config.layers[name]
            by_name = not is_linear and isinstance(given, str) and given in NAMED
            found[name] = given if by_name else _parsed(name, given, is_linear)
            reasons[name] = "named in layers"
        elif not is_linear:
            by_name = config.precision in NAMED
            precision = config.precision if by_name else LayerPrecision.parse(config.precision)
            found[name] = precision
            reasons[name] = (
                "precision of the model" if by_name else f"{str(precision)!r} of the model"
            )
        elif config.linear:
            # Floats out: a sign behind them becomes a threshold when the model is frozen.
            letters = LayerPrecision.parse(config.precision)
            activation = "B" if config.precision == "bin" else letters.bmm[0]
            found[name] = LayerPrecision.parse_linear(f"{activation}{letters.bmm[1]}F")
            reasons[name] = "linear=True"
    return found, reasons


def _parsed(name: str, given: Any, is_linear: bool) -> LayerPrecision:
    """A precision of ``config.layers``; an error names the layer."""
    try:
        parse = LayerPrecision.parse_linear if is_linear else LayerPrecision.parse
        return parse(given)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"binarize: layers[{name!r}]: {error}") from error


def _nothing_to_swap(model: nn.Module, linear: Collection[str], kept: Mapping[str, str]) -> str:
    """Error message for a model without a layer to swap: its layers, and what would work."""
    others: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        if isinstance(module, (MessagePassing, *CONVOLUTIONS, BinaryLinear)) and name not in kept:
            others.setdefault(type(module).__name__, []).append(name or "the model itself")
    binary = ("BinaryConv2d", "BinaryLinear")
    parts = [
        f"{kind} ({', '.join(names)}) "
        + ("is binary already" if kind in binary else "has no binary form")
        for kind, names in others.items()
    ]
    parts += [f"{name or 'the model itself'} stays in floats, {why}" for name, why in kept.items()]
    if linear:
        names = ", ".join(name or "the model itself" for name in linear)
        parts.append(f"GraphConfig(linear=True) swaps its linear layers ({names})")
    if not parts:
        own = {type(m).__name__ for m in model.modules() if list(m.parameters(recurse=False))}
        parts = [f"it has {', '.join(sorted(own)) or 'no layer with weights'}"]
    return (
        "binarize: the model has no GCNConv, SAGEConv or GraphConv to swap, and no Conv2d of a "
        f"network of images; {'; '.join(parts)}"
    )


def _left(model: nn.Module, swapped: Collection[str], inside: Collection[str]) -> dict[str, str]:
    """Why layers that nobody asked about stay in floats."""
    found: dict[str, str] = {}
    for name, module in model.named_modules():
        if name in swapped or is_inside(name, inside):
            continue
        if isinstance(module, MessagePassing):
            found[name] = f"{type(module).__name__} has no binary form here"
        elif isinstance(module, LINEAR):
            found[name] = f"{type(module).__name__} is swapped with linear=True or by name only"
    return found


def swapped_layer(
    model: nn.Module, name: str, precision: str | LayerPrecision, dropout: float
) -> nn.Module:
    """Put a layer of another precision with the same weights in the place of one.

    Args:
        model: changed in place.
        name: module name of the layer, which may be the model itself.
        precision: of the new layer.
        dropout: of the new layer.

    Returns:
        The model, or the layer in its place.

    Raises:
        ValueError: the layer has other tensors than PyG's.
    """
    layer = model.get_submodule(name)
    return put_everywhere(model, layer, binary_form(layer, precision, dropout))
