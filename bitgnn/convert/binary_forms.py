"""The binary layer that stands for a float one: linear layers and the graph layers of PyG."""

from __future__ import annotations

import copy
from typing import Any, Protocol, runtime_checkable

import torch_geometric.nn
from torch import nn

import bitgnn.nn
from bitgnn.convert.graph_layers import row_of
from bitgnn.convert.keeping import OWN, carry_over
from bitgnn.convert.looked_up import narrowed_weight
from bitgnn.nn import LayerPrecision

__all__ = ["LINEAR", "HasPrecision", "binary_form"]

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

    Args:
        layer: a linear layer or one of the graph layers that have a binary form.
        precision: of the new layer.
        dropout: of the new layer.

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
