"""Changes the precision of a model's layers: for a plan to trace, and for copies to train."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn
from torch_geometric.nn import MessagePassing

from bitgnn.convert.plan import tunable_layers
from bitgnn.convert.swap.graphs import HasPrecision, swapped_layer
from bitgnn.nn import LayerPrecision
from bitgnn.nn.precision import NORM_OPTIONS, PRODUCT_OPTIONS

Precision = str | LayerPrecision
FLOAT = LayerPrecision.parse("fp32")


def own_letters(model: nn.Module) -> dict[str, str]:
    """Letters of a model's tunable layers as it stands; those of PyG are floats."""
    return {name: _spelled(layer, _own(layer)) for name, layer in tunable_layers(model).items()}


def with_letters(
    model: nn.Module,
    letters: Mapping[str, str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> nn.Module:
    """A copy of a model with other letters, to be trained or to compare a frozen model with.

    Weights, biases and statistics are kept. Models of ``bitgnn.models`` change form as
    :meth:`~bitgnn.models.base.NodeModel.with_precision` says; elsewhere layers are swapped and the
    code between them stays.

    Args:
        model: unchanged.
        letters: by layer name, spelled out; the other layers keep their own.
        options: further fields of :class:`~bitgnn.nn.LayerPrecision` by layer name, such as norms,
            which start afresh.

    Raises:
        ValueError: the model cannot have these letters or options.
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
    own = own_letters(model)
    wanted = {name: text for name, text in letters.items() if text != own[name]}
    if not wanted:
        return model, {}
    layers = tunable_layers(model)
    if not isinstance(model, HasPrecision):
        return model, {name: with_options(layers[name], text) for name, text in wanted.items()}
    graph_layers = {name: m for name, m in layers.items() if isinstance(m, MessagePassing)}
    precisions = [
        _trained(layer, wanted.get(name, own[name])) for name, layer in graph_layers.items()
    ]
    rest = {name: text for name, text in wanted.items() if name not in graph_layers}
    changed = model.with_precision(precisions)
    return changed, {name: with_options(layers[name], text) for name, text in rest.items()}


def with_options(layer: nn.Module, precision: Precision) -> LayerPrecision:
    """Letters of a plan with the options the layer has, since its norms exist or not.

    Looked-up bits stay where the product takes bits and binary weights; other letters take the
    input itself.
    """
    parse = LayerPrecision.parse
    if not isinstance(layer, MessagePassing):
        parse = LayerPrecision.parse_linear
    planned = parse(precision)
    own = getattr(layer, "letters", None)
    if not isinstance(own, LayerPrecision) or planned.is_float:
        return planned
    takes_bits = planned.bmm[:2] in ("FB", "BB")
    if own.looks_up and not takes_bits:
        own = replace(own, inputs="sign", order="transform_first", shortcut=False)
    return replace(own, bmm=planned.bmm, bspmm=planned.bspmm)


def _trained(layer: Any, letters: str) -> LayerPrecision:
    """Letters with those of the layer's options that the model does not settle by itself."""
    planned, own = LayerPrecision.parse(letters), _own(layer)
    if planned.is_float_linear or own.is_float_linear:
        return planned
    options = {name: own.options[name] for name in (*NORM_OPTIONS, *PRODUCT_OPTIONS)}
    if planned.bmm[2] != "B" and not planned.sums_ternary:
        del options["hidden_norm"]
    return replace(planned, **options)  # type: ignore[arg-type]


def _own(layer: Any) -> LayerPrecision:
    letters: LayerPrecision = getattr(layer, "letters", FLOAT)
    return letters


def _spelled(layer: nn.Module, letters: LayerPrecision) -> str:
    is_graph = isinstance(layer, MessagePassing)
    return f"{letters.bmm}+{letters.bspmm}" if is_graph else letters.bmm
