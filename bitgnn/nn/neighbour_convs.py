"""SAGEConv and GraphConv with binary products: PyG's layers plus a precision."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch_geometric.nn
from torch import Tensor
from torch.nn import functional
from torch_geometric.typing import OptPairTensor, OptTensor, SparseTensor

from bitgnn.bits import BitAdjacency
from bitgnn.nn.inputs.float_inputs import as_pair, float_features
from bitgnn.nn.neighbour_layer import NeighbourLayer, dropped
from bitgnn.nn.precision import LayerPrecision, Role
from bitgnn.nn.spread import SpreadGraph


class SAGEConv(NeighbourLayer, torch_geometric.nn.SAGEConv):
    r"""PyG's ``SAGEConv`` whose products can be binary.

    * ``"fp32"``: :math:`W_1\,\mathrm{mean}_{j \in N(i)} x_j + b + W_2 x_i`, PyG's own code.
    * ``"full"`` (``"FBF+FBF"``): :math:`\mathrm{mean}_j Y_j + b + Y'_i` with the binary products
      :math:`Y_{jo} = \alpha_j m_o\,\mathrm{sgn}(x_j)\cdot\mathrm{sgn}(W_{1,o})` and :math:`Y'` of
      :math:`W_2` (Bi-GCN).
    * ``"bin"`` (``"FBB+BBF"``): :math:`\mathrm{mean}_j \mathrm{sgn}(Y_j) + b + Y'_i`.
    * letters as in :class:`~bitgnn.nn.GCNConv`. The product of the node itself has the letters of
      the dense product with floats out: it is added to the aggregated value, then the output's
      norm and sign follow.

    A mean commutes with the linear map, so binary forms transform first and aggregate the narrower
    result; ``"full"`` is the same sum in another order. ``project`` comes first, in floats; its
    ReLU leaves nothing negative, so that without an input norm every sign of a neighbour is +1.

    Sources: Hamilton et al. 2017; Wang et al., Bi-GCN, 2021; Chen et al., BitGNN, 2023.

    Args:
        in_channels: size of each input sample, a pair of sizes of sources and destinations, or -1
            to take it from the first input.
        out_channels: size of each output sample.
        aggr: as in PyG. Another aggregation than sum and mean runs in PyG on float features before
            the product, which stays binary; one warning says so.
        normalize: L2-normalise the output. Nothing to do where it is a sign.
        root_weight: as in PyG.
        project: as in PyG.
        bias: as in PyG.
        precision: ``"fp32"``, ``"full"``, ``"bin"``, letters, or a LayerPrecision.
        dropout: probability of dropping an activation before the dense products in training;
            in binary forms it acts on the binarised activation.
        role: ``"first"``, ``"inner"``, ``"last"`` or ``"only"`` among the binary layers of a model,
            for named precisions; None follows from the data flow when the model first trains.
        **kwargs: further arguments of PyG's ``MessagePassing``.

    Raises:
        ValueError: unknown precision or ``dropout`` outside [0, 1).
    """

    propagate_type = {"x": OptPairTensor}  # noqa: RUF012

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        aggr: Any = "mean",
        normalize: bool = False,
        root_weight: bool = True,
        project: bool = False,
        bias: bool = True,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        role: Role | None = None,
        **kwargs: Any,
    ) -> None:
        self._set_precision(precision, dropout, role)
        super().__init__(
            in_channels, out_channels, aggr, normalize, root_weight, project, bias, **kwargs
        )
        self._complete(in_channels, out_channels)
        letters = self._letters
        signs = not (letters.is_float_linear or letters.input_letter.level or letters.looks_up)
        if project and signs and letters.input_norm is None:
            warnings.warn(
                "SAGEConv: project=True feeds the sign through a ReLU: no value is negative there, "
                "so every bit would be +1; set input_norm in LayerPrecision",
                UserWarning,
                stacklevel=2,
            )

    def _products(self) -> Iterable[torch_geometric.nn.Linear]:
        return (self.lin_l, self.lin_r) if self.root_weight else (self.lin_l,)

    def forward(
        self,
        x: Any,
        edge_index: Any,
        size: tuple[int | None, int | None] | None = None,
    ) -> Tensor:
        """Apply the layer.

        Args:
            x: ``[N, in_channels]`` floats, packed or not, or the pair of those of sources and of
                destinations (or None) of a bipartite graph.
            edge_index: ``[2, E]`` edge index, transposed sparse adjacency (torch sparse tensor or
                ``torch_sparse.SparseTensor``, whose values do not count, as in PyG), or a
                ``BitAdjacency``, which is used as it is: its factors make the mean.
            size: nodes of both sides of a bipartite graph.

        Returns:
            ``[N, out_channels]`` float tensor; +1 and -1 if the output letter is B.

        Raises:
            TypeError: ``x`` is neither a tensor nor a pair of tensors, or one holds no floats.
            ValueError: the width of ``x`` or the graph does not fit, or a letter or aggregation
                that needs float edges is given a ``BitAdjacency``.
        """
        self._meet_model()
        x = float_features(type(self).__name__, x)
        if self._letters.is_float and not isinstance(edge_index, BitAdjacency | SpreadGraph):
            if self.dropout > 0.0:
                x = dropped(x, self.dropout, self.training)
            out: Tensor = super().forward(x, edge_index, size)
            return out
        pair = as_pair(type(self).__name__, x)
        if self.project:
            pair = (self.lin(pair[0]).relu(), pair[1])
        if isinstance(edge_index, SparseTensor):
            edge_index = edge_index.set_value(None, layout=None)
        out = self._binary_forward(pair, edge_index, None, size)
        if self.normalize and self._letters.bspmm[2] == "F":
            out = functional.normalize(out, p=2.0, dim=-1)
        return out


class GraphConv(NeighbourLayer, torch_geometric.nn.GraphConv):
    r"""PyG's ``GraphConv`` whose products can be binary.

    * ``"fp32"``: :math:`W_1 \sum_{j \in N(i)} e_{ji} x_j + b + W_2 x_i`, PyG's own code.
    * ``"full"`` (``"FBF+FBF"``): :math:`\sum_j e_{ji} Y_j + b + Y'_i` with the binary products
      :math:`Y_{jo} = \alpha_j m_o\,\mathrm{sgn}(x_j)\cdot\mathrm{sgn}(W_{1,o})` and :math:`Y'` of
      :math:`W_2`.
    * ``"bin"`` (``"FBB+BBF"``): :math:`\sum_j e_{ji}\,\mathrm{sgn}(Y_j) + b + Y'_i`.
    * letters as in :class:`~bitgnn.nn.GCNConv`. The product of the node itself has the letters of
      the dense product with floats out.

    A sum commutes with the linear map, so binary forms transform first and aggregate the narrower
    result; ``"full"`` is the same sum in another order. Weights are exact and get their gradient.

    Sources: Morris et al. 2019; Wang et al., Bi-GCN, 2021; Chen et al., BitGNN, 2023.

    Args:
        in_channels: size of each input sample, a pair of sizes of sources and destinations, or -1
            to take it from the first input.
        out_channels: size of each output sample.
        aggr: as in PyG. Another aggregation than sum and mean runs in PyG on float features before
            the product, which stays binary; one warning says so.
        bias: as in PyG.
        precision: ``"fp32"``, ``"full"``, ``"bin"``, letters, or a LayerPrecision.
        dropout: probability of dropping an activation before the dense products in training;
            in binary forms it acts on the binarised activation.
        role: ``"first"``, ``"inner"``, ``"last"`` or ``"only"`` among the binary layers of a model,
            for named precisions; None follows from the data flow when the model first trains.
        **kwargs: further arguments of PyG's ``MessagePassing``.

    Raises:
        ValueError: unknown precision or ``dropout`` outside [0, 1).
    """

    propagate_type = {"x": OptPairTensor, "edge_weight": OptTensor}  # noqa: RUF012

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        aggr: Any = "add",
        bias: bool = True,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        role: Role | None = None,
        **kwargs: Any,
    ) -> None:
        self._set_precision(precision, dropout, role)
        super().__init__(in_channels, out_channels, aggr, bias, **kwargs)
        self._complete(in_channels, out_channels)

    def _products(self) -> Iterable[torch_geometric.nn.Linear]:
        return (self.lin_rel, self.lin_root)

    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        size: tuple[int | None, int | None] | None = None,
    ) -> Tensor:
        """Apply the layer: as :meth:`SAGEConv.forward`, and with ``edge_weight``.

        Args:
            x: features of the nodes, or of both sides of a bipartite graph.
            edge_index: the graph in any form; the values of a sparse adjacency are its weights.
            edge_weight: ``[E]`` float weights of an edge index.
            size: nodes of both sides of a bipartite graph.
        """
        self._meet_model()
        x = float_features(type(self).__name__, x)
        if self._letters.is_float and not isinstance(edge_index, BitAdjacency | SpreadGraph):
            if self.dropout > 0.0:
                x = dropped(x, self.dropout, self.training)
            out: Tensor = super().forward(x, edge_index, edge_weight, size)
            return out
        pair = as_pair(type(self).__name__, x)
        return self._binary_forward(pair, edge_index, edge_weight, size)
