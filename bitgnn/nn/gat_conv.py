"""GATConv with binary messages: PyG's layer plus a precision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptPairTensor, OptTensor

from bitgnn.bits import BitAdjacency
from bitgnn.nn.attention_layer import AttentionLayer
from bitgnn.nn.precision import LayerPrecision, Role
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

    Binary layers in evaluation compute what frozen ones compute; in training, with
    ``return_attention_weights`` or ``edge_attr``, PyG's messages run.

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
        edge_dim: as in PyG; the edges' part of the scores stays in floats.
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
        residual: bool = False,
        precision: str | LayerPrecision | None = None,
        role: Role | None = None,
        **kwargs: Any,
    ) -> None:
        self._set_precision(precision, dropout, role)
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops,
            edge_dim, fill_value, bias, residual, **kwargs,
        )  # fmt: skip
        self._complete(in_channels, heads * out_channels)

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
        if self.letters.is_float and not isinstance(edge_index, BitAdjacency):
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

    def _operated(self, z: Tensor, own: Tensor, adjacency: BitAdjacency) -> Tensor:
        ops, size, heads = torch.ops.bitgnn, z.size(1), self.heads
        words = ops.pack(z)
        others = words if own is z else ops.pack(own)
        weight = self.score_weight()
        first, second = (weight[:heads], weight[heads:]) if own is not z else (weight, weight[:0])
        scores = ops.bits_linear(words, *weight_digits(first), size)
        target = scores[:, heads:]
        if own is not z:
            target = ops.bits_linear(others, *weight_digits(second), size)
        out: Tensor = ops.gat_bits(
            words, size, heads, adjacency.rowptr, adjacency.indices, scores[:, :heads], target,
            self.negative_slope, None, self._operator_bias(), trusted=True,
        )  # fmt: skip
        return out

    def score_weight(self) -> Tensor:
        """Attention vectors as a matrix ``[2 H, H * C]``: of sources, then of destinations."""
        blocks = [
            torch.block_diag(*att.detach().float().view(self.heads, 1, -1))
            for att in (self.att_src, self.att_dst)
        ]
        return torch.cat(blocks)
