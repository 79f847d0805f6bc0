"""GATConv with binary messages: PyG's layer plus a precision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch.nn import functional
from torch_geometric.typing import OptPairTensor, OptTensor

from bitgnn.bits import BitAdjacency
from bitgnn.nn.attention.attention_layer import AttentionLayer
from bitgnn.ops.linear import weight_digits


class GATConv(AttentionLayer, torch_geometric.nn.GATConv):
    r"""PyG's ``GATConv`` whose projection and messages can be binary.

    With :math:`z_j` the projection of a node, heads side by side, and
    :math:`\alpha_{ij} = \mathrm{softmax}_j(\mathrm{leaky\_relu}(a_s \cdot z_j + a_d \cdot z_i))`
    a layer gives :math:`\sum_j \alpha_{ij} z_j + b` for each head, where

    * ``"fp32"``: :math:`z = W x`, PyG's own code.
    * ``"bin"``: a layer that a binary one reads has signs of a normed binary product as z:
      messages are one bit a feature, and scores floats of the very bits. The last one has floats
      ``z = gain * product``, which a frozen layer aggregates as the input's bits, before the
      product.
    * ``"full"``: binary products, normed before other layers, and float messages.
    * letters as in :class:`~bitgnn.nn.GCNConv`: those of the dense product, then B or F messages;
      the adjacency's letter has no meaning.

    Features of edges add a float an edge and head to the scores. Binary layers in evaluation
    compute what frozen ones compute; in training and with ``return_attention_weights`` PyG's
    messages run.

    Sources: Veličković et al. 2018; Chen et al., BitGNN, 2023.

    Args:
        in_channels: size of each input sample, a pair of sizes of sources and destinations, or -1
            to take it from the first input.
        out_channels: size of each head's output.
        heads: as in PyG.
        concat: as in PyG.
        negative_slope: as in PyG.
        dropout: as in PyG, of the attention coefficients.
        add_self_loops: as in PyG.
        edge_dim: as in PyG.
        fill_value: as in PyG.
        bias: as in PyG.
        residual: as in PyG; its product stays in floats.
        precision: ``"fp32"``, ``"full"``, ``"bin"``, letters, or a LayerPrecision.
        role: ``"first"``, ``"inner"``, ``"last"`` or ``"only"`` among the binary layers of a model,
            for named precisions; None follows from the data flow when the model first trains.
        **kwargs: further arguments of PyG's ``MessagePassing``.

    Raises:
        ValueError: unknown precision or ``dropout`` outside [0, 1).
    """

    propagate_type = {"x": OptPairTensor, "alpha": Tensor}  # noqa: RUF012
    edge_updater_type = {"alpha": OptPairTensor, "edge_attr": OptTensor}  # noqa: RUF012

    def _products(self) -> Iterable[torch_geometric.nn.Linear]:
        return (self.lin,) if self.lin is not None else (self.lin_src, self.lin_dst)

    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Apply the layer.

        Args:
            x: ``[N, in_channels]`` floats (packed or not), or a pair of those of sources and
                destinations.
            edge_index: ``[2, E]`` edge index, transposed sparse adjacency, or a ``BitAdjacency``,
                which is used as it is, without further self loops.
            edge_attr: ``[E, edge_dim]`` floats.
            size: nodes of both sides of a bipartite graph.
            return_attention_weights: as in PyG.

        Returns:
            ``[N, heads * out_channels]`` or, without ``concat``, ``[N, out_channels]`` floats; with
            ``return_attention_weights`` with edges and coefficients, as in PyG.

        Raises:
            TypeError: ``x`` is neither a tensor nor a pair of tensors, or one holds no floats.
            ValueError: the width of ``x`` or the graph does not fit.
        """
        self._meet_model()
        if self._letters.is_float and not isinstance(edge_index, BitAdjacency):
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights)
        return self._binary_call(x, edge_index, edge_attr, size, return_attention_weights)

    def _attended(
        self, z: Tensor, own: Tensor | None, edge_index: Any, edge_attr: Tensor | None, size: Any
    ) -> tuple[Tensor, Tensor]:
        shape = (-1, self.heads, self.out_channels)
        source, target = z.view(shape), None if own is None else own.view(shape)
        scores = (source * self.att_src).sum(-1)
        others = None if target is None else (target * self.att_dst).sum(-1)
        alpha = self.edge_updater(
            edge_index, alpha=(scores, others), edge_attr=edge_attr, size=size
        )
        return self.propagate(edge_index, x=(source, target), alpha=alpha, size=size), alpha

    def _operated(
        self, z: Tensor, own: Tensor, adjacency: BitAdjacency, edge_attr: Tensor | None
    ) -> Tensor:
        ops, size, heads = torch.ops.bitgnn, z.size(1), self.heads
        words = ops.pack(z)
        others = words if own is z else ops.pack(own)
        weight = self.score_weight()
        first, second = (weight[:heads], weight[heads:]) if own is not z else (weight, weight[:0])
        scores = ops.bits_linear(words, *weight_digits(first), size)
        target = scores[:, heads:]
        if own is not z:
            target = ops.bits_linear(others, *weight_digits(second), size)
        edge = None if edge_attr is None else self._edge_scores(edge_attr)
        out: Tensor = ops.gat_bits(
            words, size, heads, adjacency.rowptr, adjacency.indices, scores[:, :heads], target,
            self.negative_slope, edge, self._operator_bias(), trusted=True,
        )  # fmt: skip
        return out

    def _edge_scores(self, edge_attr: Tensor) -> Tensor:
        """Terms ``[E, H]`` of the scores: the attention vectors behind the map of the features."""
        weight = self.lin_edge.weight.view(self.heads, self.out_channels, -1)
        folded = (self.att_edge.view(self.heads, self.out_channels, 1) * weight).sum(1)
        return functional.linear(edge_attr, folded)

    def score_weight(self) -> Tensor:
        """Attention vectors as a matrix ``[2 H, H * C]``: of sources, then of destinations."""
        blocks = [
            torch.block_diag(*att.detach().float().view(self.heads, 1, -1))
            for att in (self.att_src, self.att_dst)
        ]
        return torch.cat(blocks)
