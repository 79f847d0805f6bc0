"""GATv2Conv with binary messages: PyG's layer plus a precision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor, PairTensor

from bitgnn.bits import BitAdjacency
from bitgnn.nn.attention.attention_layer import AttentionLayer
from bitgnn.nn.edge_features import scores_of_pairs
from bitgnn.nn.precision import LayerPrecision, Role
from bitgnn.ops.gat import PairWeights, pair_weights
from bitgnn.quantize import binary_sign


class GATv2Conv(AttentionLayer, torch_geometric.nn.GATv2Conv):
    r"""PyG's ``GATv2Conv`` whose projections, scores and messages can be binary.

    With projections :math:`l` of sources and :math:`r` of destinations a layer gives
    :math:`\sum_j \alpha_{ij} (l_j + b_l) + b` for each head, where :math:`\alpha_{ij}` is the
    softmax of :math:`a \cdot \mathrm{leaky\_relu}(\hat l_j + b_l + \hat r_i + b_r)` and

    * ``"fp32"``: :math:`\hat l = l = W_l x`, PyG's own code.
    * ``"bin"``: a layer that a binary one reads has signs of normed binary products as l and r, so
      that scores are sums of integers looked up by bytes of bits (:mod:`bitgnn.ops.gat`). In the
      last one l are floats, ``gain * product``, and :math:`\hat l`, :math:`\hat r` their signs.
    * ``"full"``: binary products, normed before other layers, and float messages; scores
      take their signs.
    * letters as in :class:`~bitgnn.nn.GATConv`.

    Features of edges stand beside the projections in the leaky ReLU, in floats.

    Sources: Brody et al. 2022; Chen et al., BitGNN, 2023.

    Args:
        in_channels: size of each input sample, a pair of sizes of sources and destinations, or -1
            to take it from the first input.
        out_channels: size of each head's output.
        share_weights: as in PyG; so are the arguments that are not named here.
        precision: as of :class:`~bitgnn.nn.GATConv`.
        role: as of :class:`~bitgnn.nn.GATConv`.
        **kwargs: further arguments of PyG's ``MessagePassing``.

    Raises:
        ValueError: unknown precision or ``dropout`` outside [0, 1).
    """

    propagate_type = {"x": PairTensor, "alpha": Tensor}  # noqa: RUF012
    edge_updater_type = {"x": PairTensor, "edge_attr": OptTensor}  # noqa: RUF012

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        share_weights: bool = False,
        residual: bool = False,
        precision: str | LayerPrecision | None = None,
        role: Role | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops,
            edge_dim, fill_value, bias, residual, precision, role, share_weights=share_weights,
            **kwargs,
        )  # fmt: skip

    def _products(self) -> Iterable[torch_geometric.nn.Linear]:
        return (self.lin_l,) if self.lin_r is self.lin_l else (self.lin_l, self.lin_r)

    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Apply the layer: as :meth:`GATConv.forward`, without ``size``.

        Args:
            x: features of the nodes, or of both sides of a bipartite graph.
            edge_index: the graph in any form.
            edge_attr: ``[E, edge_dim]`` floats.
            return_attention_weights: as in PyG.
        """
        self._meet_model()
        if self._letters.is_float and not isinstance(edge_index, BitAdjacency):
            return super().forward(x, edge_index, edge_attr, return_attention_weights)
        return self._binary_call(x, edge_index, edge_attr, None, return_attention_weights)

    def _attended(
        self, z: Tensor, own: Tensor | None, edge_index: Any, edge_attr: Tensor | None, size: Any
    ) -> tuple[Tensor, Tensor]:
        if own is None:
            raise ValueError(f"{type(self).__name__}: x must hold the features of the destinations")
        shape = (-1, self.heads, self.out_channels)
        left, right = z, own
        if not self._to_signs and not self._letters.is_float:
            left, right = (binary_sign(side, self._letters.surrogate) for side in (z, own))
        if self.lin_l.bias is not None:
            z, left, right = z + self.lin_l.bias, left + self.lin_l.bias, right + self.lin_r.bias
        sides = (left.view(shape), right.view(shape))
        alpha = self.edge_updater(edge_index, x=sides, edge_attr=edge_attr)
        return self.propagate(edge_index, x=(z.view(shape), sides[1]), alpha=alpha), alpha

    def _operated(
        self, z: Tensor, own: Tensor, adjacency: BitAdjacency, edge_attr: Tensor | None
    ) -> Tensor:
        ops, size = torch.ops.bitgnn, z.size(1)
        left = ops.pack(z)
        if edge_attr is not None:
            edge = self._edge_scores(z, own, adjacency, edge_attr)
            found: Tensor = ops.gat_bits(
                left, size, self.heads, adjacency.rowptr, adjacency.indices, None, None, 1.0, edge,
                self._operator_bias(), trusted=True,
            )  # fmt: skip
            return found
        right = left if own is z else ops.pack(own)
        out: Tensor = ops.gatv2_bits(
            left, size, self.heads, adjacency.rowptr, adjacency.indices, left, right, size,
            *self.pair_weights(), self._operator_bias(), trusted=True,
        )  # fmt: skip
        return out

    def _edge_scores(
        self, z: Tensor, own: Tensor, adjacency: BitAdjacency, edge_attr: Tensor
    ) -> Tensor:
        """Scores ``[E, H]`` of edges with features."""
        if self.lin_l.bias is not None:
            z, own = z + self.lin_l.bias, own + self.lin_r.bias
        att = self.att.view(self.heads, self.out_channels)
        last = self.lin_edge.weight, att, self.negative_slope
        return scores_of_pairs(z, own, adjacency, edge_attr, *last)

    def pair_weights(self) -> PairWeights:
        """Weights of the scores of pairs of bits."""
        att = self.att.detach().view(self.heads, self.out_channels)
        return pair_weights(att, self.negative_slope, self.lin_l.bias, self.lin_r.bias)

    def _message_bias(self) -> Tensor | None:
        return self.lin_l.bias

    def _constant(self) -> Tensor | None:
        own, bias = self.lin_l.bias, self.bias
        return bias if own is None else own if bias is None else own + bias
