"""SGConv and SSGConv with a binary product: PyG's layers plus a precision."""

from __future__ import annotations

from typing import Any

import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor

from bitgnn.nn.inputs.float_inputs import float_features
from bitgnn.nn.precision import LayerPrecision
from bitgnn.nn.propagation.base import Propagation
from bitgnn.nn.propagation.reductions import neighbour_sums


class SGConv(Propagation, torch_geometric.nn.SGConv):
    r"""PyG's ``SGConv`` whose product can be binary.

    * ``"fp32"``: :math:`\hat A^K X W^\top + b`, PyG's own code.
    * ``"bin"`` or ``"full"``: :math:`\hat A^K Y + b` with the product :math:`Y` of
      :class:`~bitgnn.nn.Linear`, whose signs are summed first in ``"bin"`` before another binary
      layer.

    Source: Wu et al., "Simplifying Graph Convolutional Networks", ICML 2019.

    Args:
        in_channels: size of each input sample.
        out_channels: size of each output sample.
        K: number of hops.
        cached: as in PyG, for ``"fp32"``.
        add_self_loops: as in PyG.
        bias: as in PyG.
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
        K: int = 1,
        cached: bool = False,
        add_self_loops: bool = True,
        bias: bool = True,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, K, cached, add_self_loops, bias, **kwargs)
        self._start(precision, dropout)

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Apply the layer.

        Args:
            x: ``[N, in_channels]`` floats, packed or not.
            edge_index: ``[2, E]`` edge index, transposed sparse adjacency, or in binary precisions
                a ``BitAdjacency``, used as it is.
            edge_weight: ``[E]`` floats, beside an edge index.

        Returns:
            ``[N, out_channels]`` floats.

        Raises:
            TypeError: in binary precisions ``x`` holds no floats.
            ValueError: in binary precisions the width of ``x`` or the graph does not fit.
        """
        out: Any
        if not self.is_binary:
            out = super().forward(x, edge_index, edge_weight)
            return out
        out = self.lin(float_features("SGConv", x))
        graph = self._graph(out, edge_index, edge_weight)
        for hop in range(self.K):
            out = neighbour_sums(out, graph, hop == 0 and self.lin.gives_signs)
        return out if self.lin.bias is None else out + self.lin.bias


class SSGConv(Propagation, torch_geometric.nn.SSGConv):
    r"""PyG's ``SSGConv`` whose product can be binary.

    :math:`\alpha Y + \frac{1 - \alpha}{K} \sum_{k=1}^K \hat A^k Y + b`, with :math:`Y` and the
    precisions of :class:`SGConv`.

    Source: Zhu and Koniusz, "Simple Spectral Graph Convolution", ICLR 2021.

    Args:
        in_channels: size of each input sample.
        out_channels: size of each output sample.
        alpha: share of the node itself.
        K: number of hops.
        cached: as in PyG, for ``"fp32"``.
        add_self_loops: as in PyG.
        bias: as in PyG.
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
        alpha: float,
        K: int = 1,
        cached: bool = False,
        add_self_loops: bool = True,
        bias: bool = True,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        own = in_channels, out_channels, alpha, K, cached, add_self_loops, bias
        super().__init__(*own, **kwargs)
        self._start(precision, dropout)

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Apply the layer: as :meth:`SGConv.forward`."""
        out: Any
        if not self.is_binary:
            out = super().forward(x, edge_index, edge_weight)
            return out
        y = self.lin(float_features("SSGConv", x))
        graph, out = self._graph(y, edge_index, edge_weight), y * self.alpha
        for hop in range(self.K):
            y = neighbour_sums(y, graph, hop == 0 and self.lin.gives_signs)
            out = out + (1 - self.alpha) / self.K * y
        return out if self.lin.bias is None else out + self.lin.bias
