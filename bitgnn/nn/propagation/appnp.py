"""APPNP and LGConv on the adjacency of frozen models: sums of floats, with PyG's signatures."""

from __future__ import annotations

from typing import Any

import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor

from bitgnn.nn.precision import LayerPrecision
from bitgnn.nn.propagation.base import Propagation
from bitgnn.nn.propagation.reductions import neighbour_sums


class APPNP(Propagation, torch_geometric.nn.APPNP):
    r"""PyG's ``APPNP``, whose sums stay floats: those of class scores, again and again.

    * ``"fp32"``: :math:`x^{(k)} = (1 - \alpha) \hat A x^{(k-1)} + \alpha x^{(0)}`, PyG's own code.
    * ``"bin"`` or ``"full"``: the same but for rounding, with :math:`\hat A` as factors, kept for
      edges that stay, so that no message has a copy of its own and a frozen model has the sums as
      steps. With ``dropout``, of edges, training runs PyG's code.

    Source: Gasteiger et al., "Predict then Propagate", ICLR 2019.

    Args:
        K: number of hops.
        alpha: teleport probability.
        dropout: of edges in training.
        cached: as in PyG, for ``"fp32"``.
        add_self_loops: as in PyG.
        normalize: as in PyG.
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        **kwargs: further arguments of PyG's ``MessagePassing``.

    Raises:
        ValueError: unknown precision, or another one than ``"fp32"`` with an aggregation that is no
            sum.
    """

    propagate_type = {"x": Tensor, "edge_weight": OptTensor}  # noqa: RUF012

    def __init__(
        self,
        K: int,
        alpha: float,
        dropout: float = 0.0,
        cached: bool = False,
        add_self_loops: bool = True,
        normalize: bool = True,
        precision: str | LayerPrecision | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(K, alpha, dropout, cached, add_self_loops, normalize, **kwargs)
        self._start(precision)

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Apply the layer: as :meth:`~bitgnn.nn.SGConv.forward`."""
        out: Any
        if not self.is_binary or (self.dropout > 0.0 and self.training):
            out = super().forward(x, edge_index, edge_weight)
            return out
        graph, out = self._graph(x, edge_index, edge_weight), x
        for _ in range(self.K):
            out = neighbour_sums(out, graph) * (1 - self.alpha) + self.alpha * x
        return out


class LGConv(Propagation, torch_geometric.nn.LGConv):
    r"""PyG's ``LGConv``, whose sums :math:`\hat A x` stay floats, as those of :class:`APPNP` do.

    Source: He et al., "LightGCN", SIGIR 2020.

    Args:
        normalize: as in PyG.
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        **kwargs: further arguments of PyG's ``MessagePassing``.

    Raises:
        ValueError: as :class:`APPNP`.
    """

    propagate_type = {"x": Tensor, "edge_weight": OptTensor}  # noqa: RUF012

    def __init__(
        self, normalize: bool = True, precision: str | LayerPrecision | None = None, **kwargs: Any
    ) -> None:
        super().__init__(normalize, **kwargs)
        self._start(precision)

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Apply the layer: as :meth:`~bitgnn.nn.SGConv.forward`."""
        out: Any
        if not self.is_binary:
            out = super().forward(x, edge_index, edge_weight)
            return out
        return neighbour_sums(x, self._graph(x, edge_index, edge_weight))
