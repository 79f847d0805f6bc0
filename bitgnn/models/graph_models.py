"""GCN, GraphSAGE and GraphSAINT for node classification, in full precision and binary forms."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.models.base import NodeModel, Precision
from bitgnn.nn import GCNConv, GraphConv, LayerPrecision, SAGEConv


def standardized(
    precisions: Sequence[LayerPrecision], input_norm: bool
) -> tuple[LayerPrecision, ...]:
    """``precisions`` with each node's floats standardised before every sign.

    A ReLU leaves no negative value, so a sign after it needs the node's mean taken off. Bits are
    taken as they are: standardising +1 and -1 changes no sign. A layer's own norm stays.
    """
    layers = []
    for i, layer in enumerate(precisions):
        takes_floats = input_norm if i == 0 else precisions[i - 1].bspmm[2] == "F"
        if takes_floats and not layer.is_float_linear and layer.input_norm is None:
            layer = dataclasses.replace(layer, input_norm="standardize")
        layers.append(layer)
    return tuple(layers)


class _Stack(NodeModel):
    """A stack of layers, and its form with means over neighbours."""

    def _sizes(self) -> list[tuple[int, int]]:
        """Input and output features of each layer."""
        hidden = [self.hidden_channels] * (self.num_layers - 1)
        return list(itertools.pairwise([self.in_channels, *hidden, self.out_channels]))

    def _add_means(self, input_norm: bool, bias: bool, root_weight: bool) -> None:
        """One ``SAGEConv`` a layer.

        Between layers dropout acts on floats before the standardisation
        (:meth:`_scores_of_means`), but on signs where bits are handed over (the layer).
        """
        self.takes_edge_weights = False
        self.precisions = standardized(self.precisions, input_norm)
        self.activation_dropout = nn.Dropout(self.dropout)
        self.convs = nn.ModuleList(
            SAGEConv(
                *sizes,
                aggr="mean",
                bias=bias,
                root_weight=root_weight,
                precision=layer,
                dropout=self.dropout if i > 0 and self._gives_bits(i - 1) else 0.0,
            )
            for i, (sizes, layer) in enumerate(zip(self._sizes(), self.precisions, strict=True))
        )

    def _gives_bits(self, layer: int) -> bool:
        return self.precisions[layer].bspmm[2] == "B"

    def _scores_of_means(self, x: Tensor, edge_index: Any) -> Tensor:
        """Apply the layers, with ReLU and dropout after those that return floats."""
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            if i < self.num_layers - 1 and not self._gives_bits(i):
                x = self.activation_dropout(functional.relu(x))
        return x


class GCN(_Stack):
    r"""Stack of :class:`bitgnn.nn.GCNConv`, or of mean aggregations in its inductive form.

    * ``"fp32"``: :math:`\hat A\,\mathrm{ReLU}(\hat A X W_1^\top + b_1) W_2^\top + b_2` (Kipf and
      Welling 2017), dropout before each layer.
    * ``"full"``: no ReLU; each layer binarises its input and weights and aggregates floats
      (Bi-GCN, Wang et al. 2021).
    * ``"bin"``: layers before the last also aggregate bits,
      :math:`h = \mathrm{sgn}(\hat D^{-1/2}(A+I)\,\mathrm{sgn}(\cdot) + b)` (BitGNN's "bin").
    * letters, or one entry a layer: see :func:`~bitgnn.models.base.layer_precisions`. A
      ReLU stands before each float layer that receives floats, never before a sign.

    ``inductive=True`` is the form for samples of large graphs: each layer is the mean over the
    neighbours without self loop and root term, that is ``SAGEConv(root_weight=False)``. It is
    :class:`~bitgnn.models.GraphSAGE` without the root term: see there for what stands between
    layers (per-node standardisation before signs, ReLU and dropout after float outputs).

    Args:
        in_channels: features of a node.
        hidden_channels: width of the hidden layers.
        out_channels: classes.
        num_layers: number of layers.
        precision: ``"fp32"``, ``"full"``, ``"bin"``, letters, or one entry a layer.
        dropout: probability of dropping a layer's input, in binary forms after the sign; in the
            inductive form only hidden activations are dropped.
        input_norm: standardise each raw feature by ``BatchNorm1d(affine=False)``; in the inductive
            form standardise each node's raw features before their sign instead.
        cached: layers keep the normalised graph of the first call (one graph only).
        bias: layers add a bias after the aggregation.
        inductive: the inductive form.
        **layer_options: ``hidden_norm``, ``output_norm``, ``surrogate``, ``weight_gradient`` and
            ``hardtanh`` of the binary layers, see :class:`bitgnn.nn.LayerPrecision`.

    Raises:
        TypeError: unknown layer option.
        ValueError: impossible precision, a size below 1, ``dropout`` outside [0, 1), or both
            ``cached`` and ``inductive``.
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
        if inductive:
            if cached:
                raise ValueError("GCN: cached keeps one graph, inductive takes many; choose one")
            self._add_means(input_norm, bias, root_weight=False)
            return
        if input_norm:
            self.norm = nn.BatchNorm1d(in_channels, affine=False)
        options: dict[str, Any] = {"dropout": dropout, "cached": cached, "bias": bias}
        self.convs = nn.ModuleList(
            GCNConv(*sizes, precision=layer, **options)
            for sizes, layer in zip(self._sizes(), self.precisions, strict=True)
        )

    def _scores(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
        if self.inductive:
            return self._scores_of_means(x, edge_index)
        if self.norm is not None:
            x = self.norm(x)
        for i, conv in enumerate(self.convs):
            # In front of a sign a ReLU would turn every bit into +1.
            if i > 0 and self.precisions[i].is_float_linear and not self._gives_bits(i - 1):
                x = functional.relu(x)
            x = conv(x, edge_index, edge_weight)
        return x


class GraphSAGE(_Stack):
    r"""Stack of :class:`bitgnn.nn.SAGEConv` with mean aggregation and a root term.

    With :math:`s(x_i) = (x_i - \mathrm{mean}\,x_i) / (\mathrm{std}\,x_i + 10^{-4})` of a node:

    * ``"fp32"``: :math:`h_i = \mathrm{ReLU}(W \cdot \mathrm{mean}_j x_j + W_r x_i + b)`, dropout,
      and so on (Hamilton et al. 2017).
    * ``"full"``: the same with :math:`s`, sign and binary weights before both products; means
      are taken of floats (Bi-GCN, Wang et al. 2021).
    * ``"bin"``: layers before the last take the mean of signs and return
      :math:`\mathrm{sgn}(\mathrm{mean}_j\,\mathrm{sgn}(\cdot) + \text{root} + b)`. Bits go from
      layer to layer, so there is no ReLU (every sign after it would be +1) and no
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
        input_norm: standardise each node's raw features before their sign.
        bias: layers add a bias.
        **layer_options: ``hidden_norm``, ``output_norm``, ``surrogate``, ``weight_gradient`` and
            ``hardtanh`` of the binary layers, see :class:`bitgnn.nn.LayerPrecision`.

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
        self._add_means(input_norm, bias, root_weight=True)

    def _scores(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
        return self._scores_of_means(x, edge_index)


class GraphSAINT(NodeModel):
    r"""Two :class:`bitgnn.nn.GraphConv` layers whose joined outputs feed a float linear map.

    .. math:: h_1 = conv_1(x), \quad h_2 = conv_2(h_1), \quad y = W\,[h_1 \,\|\, h_2] + b

    * ``"fp32"``: ReLU and dropout after both layers (Zeng et al. 2020).
    * ``"full"``: no ReLU; the raw features of each node are standardised and binarised, the
      second layer binarises :math:`h_1`; aggregations and the last map are floats (Bi-GCN, Wang
      et al. 2021).
    * ``"bin"``: the first layer aggregates signs and returns bits, the second multiplies bits and
      aggregates floats; the last map takes the bits as +1 and -1.
    * letters, or one entry for each of the two layers: see
      :func:`~bitgnn.models.base.layer_precisions`; the last map stays in full precision.

    Before a sign dropout acts on the sign, before the last map on the floats.

    Args:
        in_channels: features of a node.
        hidden_channels: width of each of the two layers.
        out_channels: classes.
        precision: ``"fp32"``, ``"full"``, ``"bin"``, letters, or one entry a layer.
        dropout: probability of dropping a hidden activation.
        aggr: ``"mean"`` or ``"add"`` over the neighbours; ``"add"`` together with edge weights is
            GraphSAINT's normalised form.
        input_norm: standardise each node's raw features before their sign.
        bias: layers add a bias.
        **layer_options: ``hidden_norm``, ``output_norm``, ``surrogate``, ``weight_gradient`` and
            ``hardtanh`` of the binary layers, see :class:`bitgnn.nn.LayerPrecision`.

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
        super().__init__(locals(), 2, layer_options, gives_scores=False)
        first, second = self.precisions
        self.precisions = (*standardized([first], input_norm), second)
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
        self.lin = nn.Linear(2 * hidden_channels, out_channels)

    def _scores(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
        hidden = []
        for conv, layer in zip(self.convs, self.precisions, strict=True):
            x = conv(x, edge_index, edge_weight)
            if layer.is_float:
                x = functional.relu(x)
            hidden.append(x)
        out: Tensor = self.lin(self.activation_dropout(torch.cat(hidden, dim=-1)))
        return out
