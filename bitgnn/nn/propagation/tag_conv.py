"""TAGConv with binary products: PyG's layer plus a precision."""

from __future__ import annotations

from typing import Any

import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor

from bitgnn.nn.inputs.float_inputs import float_features
from bitgnn.nn.precision import LayerPrecision
from bitgnn.nn.propagation.base import Propagation
from bitgnn.nn.propagation.reductions import neighbour_sums


class TAGConv(Propagation, torch_geometric.nn.TAGConv):
    r"""PyG's ``TAGConv`` whose products can be binary.

    * ``"fp32"``: :math:`\sum_{k=0}^K \hat A^k X W_k^\top + b`, PyG's own code.
    * ``"bin"`` or ``"full"``: :math:`Y_0 + \hat A (Y_1 + \hat A (\dots + \hat A Y_K)) + b` with
      products :math:`Y_k` of :class:`~bitgnn.nn.Linear`. In ``"bin"`` :math:`Y_K` are signs before
      another binary layer.

    Source: Du et al., "Topology Adaptive Graph Convolutional Networks", 2017.

    Args:
        in_channels: size of each input sample.
        out_channels: size of each output sample.
        K: number of hops.
        bias: as in PyG.
        normalize: as in PyG.
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        dropout: probability of dropping a bit before a product, in training.
        **kwargs: further arguments of PyG's ``MessagePassing``; binary forms sum.

    Raises:
        ValueError: unknown precision, or a binary one with an option that has none.
    """

    propagate_type = {"x": Tensor, "edge_weight": OptTensor}  # noqa: RUF012

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        K: int = 3,
        bias: bool = True,
        normalize: bool = True,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, K, bias, normalize, **kwargs)
        self._start(precision, dropout)

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Apply the layer: as :meth:`~bitgnn.nn.SGConv.forward`."""
        out: Any
        if not self.is_binary:
            out = super().forward(x, edge_index, edge_weight)
            return out
        *others, last = self.lins
        x = float_features("TAGConv", x)
        out, are_signs = last(x), last.gives_signs
        graph = self._graph(out, edge_index, edge_weight)
        for linear in reversed(others):
            out = neighbour_sums(out, graph, are_signs) + linear(x)
            are_signs = False
        return out if self.bias is None else out + self.bias
