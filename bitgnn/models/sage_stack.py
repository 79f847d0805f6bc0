"""The stack of mean-aggregating layers behind the inductive GCN and GraphSAGE."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from bitgnn.nn import LayerPrecision, SAGEConv

__all__ = ["run_sage_stack", "sage_layers", "standardized"]


def standardized(
    precisions: Sequence[LayerPrecision], *, input_norm: bool
) -> tuple[LayerPrecision, ...]:
    """``precisions`` with each node's floats standardised in front of every sign.

    A ReLU leaves no negative value, so a sign behind it needs the node's mean taken off. Bits are
    taken as they are: standardising +1 and -1 changes no sign.

    Args:
        precisions: of the layers in order.
        input_norm: whether the raw features are standardised too.

    Returns:
        As many precisions; a layer with an ``input_norm`` of its own keeps it.
    """
    layers = []
    for i, layer in enumerate(precisions):
        takes_floats = input_norm if i == 0 else precisions[i - 1].bspmm[2] == "F"
        if takes_floats and not layer.is_float_linear and layer.input_norm is None:
            layer = dataclasses.replace(layer, input_norm="standardize")
        layers.append(layer)
    return tuple(layers)


def sage_layers(
    sizes: Sequence[int],
    precisions: Sequence[LayerPrecision],
    *,
    dropout: float,
    bias: bool,
    root_weight: bool,
) -> nn.ModuleList:
    """One ``SAGEConv`` for each pair of neighbouring ``sizes``.

    Between layers dropout acts on floats in front of the standardisation, which
    :func:`run_sage_stack` does, but on signs where bits are handed over, which the layer does.
    """
    return nn.ModuleList(
        SAGEConv(
            sizes[i],
            sizes[i + 1],
            aggr="mean",
            bias=bias,
            root_weight=root_weight,
            precision=precision,
            dropout=dropout if i > 0 and precisions[i - 1].bspmm[2] == "B" else 0.0,
        )
        for i, precision in enumerate(precisions)
    )


def run_sage_stack(
    convs: nn.ModuleList,
    precisions: Sequence[LayerPrecision],
    dropout: nn.Dropout,
    x: Tensor,
    edge_index: object,
) -> Tensor:
    """Layers with ReLU and dropout behind every one that hands over floats."""
    for i, conv in enumerate(convs):
        x = conv(x, edge_index)
        if i < len(convs) - 1 and precisions[i].bspmm[2] == "F":
            x = dropout(functional.relu(x))
    return x
