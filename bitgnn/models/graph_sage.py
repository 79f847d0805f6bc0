"""GraphSAGE for node classification in full precision and in binary forms."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from bitgnn.models.base import NodeModel, Precision
from bitgnn.nn import LayerPrecision, SAGEConv


def standardized(
    precisions: Sequence[LayerPrecision], *, input_norm: bool
) -> tuple[LayerPrecision, ...]:
    """``precisions`` with each node's floats standardised in front of every sign.

    A ReLU leaves no negative value, so a sign behind it needs the node's mean taken off. Bits are
    taken as they are: standardising +1 and -1 changes no sign.

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


class GraphSAGE(NodeModel):
    r"""Stack of :class:`bitgnn.nn.SAGEConv` with mean aggregation and a root term.

    With :math:`s(x_i) = (x_i - \mathrm{mean}\,x_i) / (\mathrm{std}\,x_i + 10^{-4})` of a node:

    * ``"fp32"``: :math:`h_i = \mathrm{ReLU}(W \cdot \mathrm{mean}_j x_j + W_r x_i + b)`, dropout,
      and so on (Hamilton et al. 2017).
    * ``"full"``: the same with :math:`s`, sign and binary weights in front of both products; means
      are taken of floats (Bi-GCN, Wang et al. 2021).
    * ``"bin"``: layers before the last take the mean of signs and return
      :math:`\mathrm{sgn}(\mathrm{mean}_j\,\mathrm{sgn}(\cdot) + \text{root} + b)`. Bits go from
      layer to layer, so there is no ReLU (every sign behind it would be +1) and no
      standardisation (it changes no sign); dropout acts on the bits.
    * letters, or one entry a layer: see :func:`~bitgnn.models.base.layer_precisions`; a
      layer that returns floats is followed by ReLU and dropout, one that returns bits is not.

    Features that are mostly 0, such as bags of words, give all nodes nearly the same signs, and the
    mean of a node's hidden units tells them apart no better: there training may stand still
    without ``output_norm="batch"``, which takes off each unit's mean over the nodes instead.

    It runs on whole graphs and on the subgraphs of a sampler such as ``bitgnn.data.NeighborLoader``
    alike: the same ``edge_index`` serves every layer, and the rows of interest are the caller's.

    Args:
        in_channels: features of a node.
        hidden_channels: width of the hidden layers.
        out_channels: classes.
        num_layers: number of layers.
        precision: ``"fp32"``, ``"full"``, ``"bin"``, letters, or one entry a layer.
        dropout: probability of dropping a hidden activation.
        input_norm: standardise each node's raw features in front of their sign.
        bias: layers add a bias.
        **layer_options: ``hidden_norm``, ``output_norm`` (``"batch"``: batch norm in front of the
            signs), ``surrogate``, ``weight_gradient``, ``hardtanh`` of the binary layers, see
            :class:`bitgnn.nn.LayerPrecision`.

    Raises:
        TypeError: unknown layer option.
        ValueError: impossible precision, a size below 1, ``dropout`` outside [0, 1).
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        precision: Precision = "fp32",
        dropout: float = 0.0,
        input_norm: bool = True,
        bias: bool = True,
        **layer_options: Any,
    ) -> None:
        super().__init__(locals(), num_layers, layer_options)
        self.precisions = standardized(self.precisions, input_norm=input_norm)
        self.activation_dropout = nn.Dropout(dropout)
        self.convs = sage_layers(
            [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels],
            self.precisions,
            dropout=dropout,
            bias=bias,
            root_weight=True,
        )

    def forward(self, x: Tensor, edge_index: Any, edge_weight: None = None) -> Tensor:
        """Class scores of each node.

        Args:
            x: ``[N, in_channels]`` floats, packed or not.
            edge_index: graph in any form :class:`bitgnn.nn.SAGEConv` takes.
            edge_weight: only None, here so that all models are called alike.

        Returns:
            ``[N, out_channels]`` float logits.

        Raises:
            ValueError: the number of features is not ``in_channels``, the graph does not fit, or
                edge weights are given.
        """
        x = self._features(x)
        self._refuse_edge_weight(edge_weight)
        return run_sage_stack(self.convs, self.precisions, self.activation_dropout, x, edge_index)
