"""GraphSAINT's two-layer network for node classification, in full precision and binary forms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.models.base import NodeModel, Precision
from bitgnn.models.graph_sage import standardized
from bitgnn.nn import GraphConv

NUM_LAYERS = 2


class GraphSAINT(NodeModel):
    r"""Two :class:`bitgnn.nn.GraphConv` layers whose outputs together meet one float linear map.

    .. math:: h_1 = conv_1(x), \quad h_2 = conv_2(h_1), \quad y = W\,[h_1 \,\|\, h_2] + b

    * ``"fp32"``: ReLU and dropout behind both layers (Zeng et al. 2020).
    * ``"full"``: no ReLU; the raw features of each node are standardised and binarised, the
      second layer binarises :math:`h_1`; aggregations and the last map are floats (Bi-GCN, Wang
      et al. 2021).
    * ``"bin"``: the first layer aggregates signs and returns bits, the second multiplies bits and
      aggregates floats; the last map takes the bits as +1 and -1.
    * letters, or one entry for each of the two layers: see
      :func:`~bitgnn.models.base.layer_precisions`; the last map stays in full precision.

    In front of a sign dropout acts on the sign, in front of the last map on the floats.

    Args:
        in_channels: features of a node.
        hidden_channels: width of each of the two layers.
        out_channels: classes.
        precision: ``"fp32"``, ``"full"``, ``"bin"``, letters, or one entry a layer.
        dropout: probability of dropping a hidden activation.
        aggr: ``"mean"`` or ``"add"`` over the neighbours; ``"add"`` together with edge weights is
            GraphSAINT's normalised form.
        input_norm: standardise each node's raw features in front of their sign.
        bias: layers add a bias.
        **layer_options: ``hidden_norm``, ``output_norm`` (``"batch"``: batch norm in front of the
            signs), ``surrogate``, ``weight_gradient``, ``hardtanh`` of the binary layers, see
            :class:`bitgnn.nn.LayerPrecision`.

    Raises:
        TypeError: unknown layer option.
        ValueError: impossible precision, a size below 1, ``dropout`` outside [0, 1), or another
            ``aggr``.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        precision: Precision = "fp32",
        dropout: float = 0.0,
        aggr: str = "mean",
        input_norm: bool = True,
        bias: bool = True,
        **layer_options: Any,
    ) -> None:
        if aggr not in ("mean", "add"):
            raise ValueError(f"GraphSAINT: aggr must be 'mean' or 'add', got {aggr!r}")
        super().__init__(locals(), NUM_LAYERS, layer_options, gives_scores=False)
        first, second = self.precisions
        self.precisions = (*standardized([first], input_norm=input_norm), second)
        self.convs = nn.ModuleList(
            GraphConv(
                in_channels if i == 0 else hidden_channels,
                hidden_channels,
                aggr=aggr,
                bias=bias,
                precision=layer,
                dropout=dropout if i > 0 else 0.0,
            )
            for i, layer in enumerate(self.precisions)
        )
        self.activation_dropout = nn.Dropout(dropout)
        self.lin = nn.Linear(NUM_LAYERS * hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Class scores of each node.

        Args:
            x: ``[N, in_channels]`` floats, packed or not.
            edge_index: graph in any form :class:`bitgnn.nn.GraphConv` takes.
            edge_weight: ``[E]`` float weights beside an edge index.

        Returns:
            ``[N, out_channels]`` float logits.

        Raises:
            ValueError: the number of features is not ``in_channels`` or the graph does not fit.
        """
        x = self._features(x)
        hidden = []
        for conv, layer in zip(self.convs, self.precisions, strict=True):
            x = conv(x, edge_index, edge_weight)
            if layer.is_float:
                x = functional.relu(x)
            hidden.append(x)
        out: Tensor = self.lin(self.activation_dropout(torch.cat(hidden, dim=-1)))
        return out
