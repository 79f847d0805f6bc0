"""GCN for node classification, on one graph or inductively, in full precision and binary forms."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from bitgnn.models.base import NodeModel, Precision
from bitgnn.models.graph_sage import run_sage_stack, sage_layers, standardized
from bitgnn.nn import GCNConv


class GCN(NodeModel):
    r"""Stack of :class:`bitgnn.nn.GCNConv`, or of mean aggregations in its inductive form.

    * ``"fp32"``: :math:`\hat A\,\mathrm{ReLU}(\hat A X W_1^\top + b_1) W_2^\top + b_2` (Kipf and
      Welling 2017), dropout in front of each layer.
    * ``"full"``: no ReLU; each layer binarises its input and weights and aggregates floats
      (Bi-GCN, Wang et al. 2021).
    * ``"bin"``: layers before the last also aggregate bits,
      :math:`h = \mathrm{sgn}(\hat D^{-1/2}(A+I)\,\mathrm{sgn}(\cdot) + b)` (BitGNN's "bin").
    * letters, or one entry a layer: see :func:`~bitgnn.models.base.layer_precisions`. A
      ReLU stands in front of each float layer that receives floats, never in front of a sign.

    ``inductive=True`` is the form for samples of large graphs: each layer is the mean over the
    neighbours without self loop and root term, that is ``SAGEConv(root_weight=False)``. It is
    :class:`~bitgnn.models.GraphSAGE` without the root term: see there for what stands between
    layers (per-node standardisation in front of signs, ReLU and dropout behind float outputs).

    Args:
        in_channels: features of a node.
        hidden_channels: width of the hidden layers.
        out_channels: classes.
        num_layers: number of layers.
        precision: ``"fp32"``, ``"full"``, ``"bin"``, letters, or one entry a layer.
        dropout: probability of dropping a layer's input, in binary forms after the sign; in the
            inductive form only hidden activations are dropped.
        input_norm: standardise each raw feature by ``BatchNorm1d(affine=False)``; in the inductive
            form standardise each node's raw features in front of their sign instead.
        cached: layers keep the normalised graph of the first call (one graph only).
        bias: layers add a bias after the aggregation.
        inductive: the inductive form.
        **layer_options: ``hidden_norm``, ``output_norm`` (``"batch"``: batch norm in front of the
            signs), ``surrogate``, ``weight_gradient``, ``hardtanh`` of the binary layers, see
            :class:`bitgnn.nn.LayerPrecision`.

    Raises:
        TypeError: unknown layer option.
        ValueError: impossible precision, a size below 1, ``dropout`` outside [0, 1), or ``cached``
            together with ``inductive``.
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
        inductive: bool = False,
        **layer_options: Any,
    ) -> None:
        super().__init__(locals(), num_layers, layer_options)
        self.cached = cached
        self.inductive = inductive
        self.norm: nn.BatchNorm1d | None = None
        sizes = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        if inductive:
            if cached:
                raise ValueError("GCN: cached keeps one graph, inductive takes many; choose one")
            self.precisions = standardized(self.precisions, input_norm=input_norm)
            self.activation_dropout = nn.Dropout(dropout)
            self.convs = sage_layers(
                sizes, self.precisions, dropout=dropout, bias=bias, root_weight=False
            )
            return
        if input_norm:
            self.norm = nn.BatchNorm1d(in_channels, affine=False)
        self.convs = nn.ModuleList(
            GCNConv(
                sizes[i],
                sizes[i + 1],
                precision=layer,
                dropout=dropout,
                cached=cached,
                bias=bias,
            )
            for i, layer in enumerate(self.precisions)
        )

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Class scores of each node.

        Args:
            x: ``[N, in_channels]`` floats, packed or not.
            edge_index: graph in any form the layers take.
            edge_weight: ``[E]`` float weights beside an edge index; None in the inductive form.

        Returns:
            ``[N, out_channels]`` float logits.

        Raises:
            ValueError: the number of features is not ``in_channels``, the graph does not fit, or
                the inductive form is given edge weights.
        """
        x = self._features(x)
        if self.inductive:
            self._refuse_edge_weight(edge_weight)
            return run_sage_stack(
                self.convs, self.precisions, self.activation_dropout, x, edge_index
            )
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
