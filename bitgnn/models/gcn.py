"""GCN for node classification, on one graph or inductively, in full precision and binary forms."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from bitgnn.models.base import NodeModel
from bitgnn.models.precisions import Precision
from bitgnn.nn import GCNConv

__all__ = ["GCN"]


class GCN(NodeModel):
    r"""Stack of :class:`bitgnn.nn.GCNConv`.

    * ``"fp32"``: :math:`\hat A\,\mathrm{ReLU}(\hat A X W_1^\top + b_1) W_2^\top + b_2` (Kipf and
      Welling 2017), dropout in front of each layer.
    * ``"full"``: no ReLU; each layer binarises its input and weights and aggregates floats
      (Bi-GCN, Wang et al. 2021).
    * ``"bin"``: layers before the last also aggregate bits,
      :math:`h = \mathrm{sgn}(\hat D^{-1/2}(A+I)\,\mathrm{sgn}(\cdot) + b)` (BitGNN's "bin").
    * letters, or one entry a layer: see :func:`~bitgnn.models.precisions.layer_precisions`. A
      ReLU stands in front of each float layer that receives floats, never in front of a sign.

    Args:
        in_channels: features of a node.
        hidden_channels: width of the hidden layers.
        out_channels: classes.
        num_layers: number of layers.
        precision: ``"fp32"``, ``"full"``, ``"bin"``, letters, or one entry a layer.
        dropout: probability of dropping a layer's input; in binary forms after the sign.
        input_norm: standardise each raw feature by ``BatchNorm1d(affine=False)``.
        cached: layers keep the normalised graph of the first call (one graph only).
        bias: layers add a bias after the aggregation.
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
        cached: bool = False,
        bias: bool = True,
        **layer_options: Any,
    ) -> None:
        arguments = {
            "in_channels": in_channels,
            "hidden_channels": hidden_channels,
            "out_channels": out_channels,
            "num_layers": num_layers,
            "precision": precision,
            "dropout": dropout,
            "input_norm": input_norm,
            "cached": cached,
            "bias": bias,
        }
        super().__init__(arguments, num_layers, layer_options)
        self.cached = cached
        self.norm = nn.BatchNorm1d(in_channels, affine=False) if input_norm else None
        sizes = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.convs = nn.ModuleList(
            GCNConv(
                sizes[i],
                sizes[i + 1],
                precision=str(self.precisions[i]),
                dropout=dropout,
                cached=cached,
                bias=bias,
            )
            for i in range(num_layers)
        )

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Class scores of each node.

        Args:
            x: ``[N, in_channels]`` float features.
            edge_index: graph in any form :class:`bitgnn.nn.GCNConv` takes.
            edge_weight: ``[E]`` float weights beside an edge index.

        Returns:
            ``[N, out_channels]`` float logits.

        Raises:
            ValueError: the number of features is not ``in_channels`` or the graph does not fit.
        """
        self._check_features(x)
        if self.norm is not None:
            x = self.norm(x)
        for i, conv in enumerate(self.convs):
            if i > 0 and self._relu_before(i):
                x = functional.relu(x)
            x = conv(x, edge_index, edge_weight)
        return x

    def _relu_before(self, i: int) -> bool:
        """Whether layer ``i`` takes floats from floats; a ReLU would turn every sign into +1."""
        return self.precisions[i].is_float_linear and self.precisions[i - 1].bspmm[2] == "F"
