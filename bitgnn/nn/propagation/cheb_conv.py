"""ChebConv with binary products: PyG's layer plus a precision."""

from __future__ import annotations

from typing import Any

import torch_geometric.nn
from torch import Tensor

from bitgnn.nn.inputs.float_inputs import float_features
from bitgnn.nn.precision import LayerPrecision
from bitgnn.nn.propagation.base import Propagation
from bitgnn.nn.propagation.reductions import neighbour_sums


class ChebConv(Propagation, torch_geometric.nn.ChebConv):
    r"""PyG's ``ChebConv`` whose products can be binary.

    * ``"fp32"``: :math:`\sum_{k=0}^{K-1} T_k(\hat L) X W_k^\top + b` with Chebyshev's polynomials
      :math:`T_k`, PyG's own code.
    * ``"bin"`` or ``"full"``: the same of products :math:`Y_k` of :class:`~bitgnn.nn.Linear` by
      Clenshaw's recurrence :math:`b_k = Y_k + 2 \hat L b_{k+1} - b_{k+2}`, for ``normalization``
      ``"sym"``. In ``"bin"`` :math:`Y_{K-1}` are signs before another binary layer.

    Source: Defferrard et al., "Convolutional Neural Networks on Graphs with Fast Localized
    Spectral Filtering", NeurIPS 2016.

    Args:
        in_channels: size of each input sample.
        out_channels: size of each output sample.
        K: number of polynomials.
        normalization: as in PyG; ``"sym"`` for binary precisions.
        bias: as in PyG.
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        dropout: probability of dropping a bit before a product, in training.
        **kwargs: further arguments of PyG's ``MessagePassing``; binary forms sum.

    Raises:
        ValueError: unknown precision, or a binary one with an option that has none.
    """

    propagate_type = {"x": Tensor, "norm": Tensor}  # noqa: RUF012

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        K: int,
        normalization: str | None = "sym",
        bias: bool = True,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, K, normalization, bias, **kwargs)
        self._start(precision, dropout)

    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        lambda_max: Any = None,
    ) -> Tensor:
        """Apply the layer: as :meth:`~bitgnn.nn.SGConv.forward`, on an edge index.

        Args:
            x: features of the nodes.
            edge_index: ``[2, E]`` edge index; or a ``BitAdjacency`` in place of
                :math:`D^{-1/2} A D^{-1/2}` without self loops.
            edge_weight: ``[E]`` floats.
            batch: ``[N]`` graph of each node, beside several ``lambda_max``.
            lambda_max: largest eigenvalue of the Laplacian, or one for each graph; 2 if None.
        """
        out: Any
        if not self.is_binary:
            out = super().forward(x, edge_index, edge_weight, batch, lambda_max)
            return out
        *others, last = self.lins
        x = float_features("ChebConv", x)
        out, before, are_signs = last(x), None, last.gives_signs
        graph = self._graph(out, edge_index, edge_weight, kind="laplacian")
        for place in reversed(range(len(others))):
            # L = (2 / lambda) (1 - A) - 1
            turned = neighbour_sums(out, graph, are_signs)
            are_signs, factor = False, 2.0 if place else 1.0
            if lambda_max is None:
                hop = -factor * turned
            else:
                scale = _per_node(2.0 / lambda_max, batch)
                hop = factor * (scale * (out - turned) - out)
            hop = others[place](x) + hop
            out, before = (hop if before is None else hop - before), out
        return out if self.bias is None else out + self.bias


def _per_node(scale: Any, batch: Tensor | None) -> Any:
    """A number, or that of each node's graph as a column."""
    if batch is None or not isinstance(scale, Tensor) or scale.numel() == 1:
        return scale
    return scale[batch].unsqueeze(1)
