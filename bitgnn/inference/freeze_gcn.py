"""Builds a FrozenGCN from trained layers: packs weights, folds batch norm and biases."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bitgnn.inference.fold import fold_batch_norm
from bitgnn.inference.frozen_gcn import FrozenGCN, GraphOptions
from bitgnn.inference.frozen_layer import FrozenGCNLayer, LayerForm, layer_forms
from bitgnn.nn import GCNConv
from bitgnn.quantize import canonical_row_scale

__all__ = ["freeze_gcn"]


def freeze_gcn(
    convs: Sequence[GCNConv], norm: nn.BatchNorm1d | None, letters: Sequence[str]
) -> FrozenGCN:
    """Pack a chain of trained GCN layers.

    A bit output is ``value + bias >= 0``, which for floats is exactly ``value >= -bias``.

    Args:
        convs: the layers in order.
        norm: batch norm of the raw features, folded into thresholds, or None.
        letters: operator letters of each layer.

    Returns:
        The frozen model on the layers' device.

    Raises:
        ValueError: the letters do not fit the layers or the layers normalise differently.
    """
    if len(letters) != len(convs):
        raise ValueError(f"freeze: {len(letters)} letter pairs for {len(convs)} layers")
    options = [
        GraphOptions(conv.normalize, conv.add_self_loops, conv.improved, conv.flow)
        for conv in convs
    ]
    if len(set(options)) > 1:
        raise ValueError("freeze: all layers must normalise the graph in the same way")
    sizes = [convs[0].lin.weight.size(1), *(conv.out_channels for conv in convs)]
    forms = layer_forms(letters, sizes)
    layers = []
    for i, (conv, form) in enumerate(zip(convs, forms, strict=True)):
        tensors = _layer_tensors(conv, form)
        if i == 0 and norm is not None:
            threshold, gain = fold_batch_norm(norm, form.in_channels)
            tensors["x_threshold"] = threshold
            tensors["x_gain"] = gain if form.uses_scale else None
        layers.append(FrozenGCNLayer(form, tensors))
    return FrozenGCN(letters, layers, options[0])


def _layer_tensors(conv: GCNConv, form: LayerForm) -> dict[str, Tensor | None]:
    weight = conv.lin.weight.detach().float().contiguous()
    bias = None if conv.bias is None else conv.bias.detach().float().clone()
    return {
        "weight": torch.ops.bitgnn.pack(weight),
        "weight_scale": None if form.hidden_bits else canonical_row_scale(weight),
        "bias": None if form.out_bits else bias,
        "threshold": -bias if form.out_bits and bias is not None else None,
    }
