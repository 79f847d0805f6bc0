"""GINEConv with a binary MLP: PyG's layer plus a precision."""

from __future__ import annotations

from typing import Any

import torch_geometric.nn
from torch import nn
from torch_geometric.typing import OptPairTensor, OptTensor

from bitgnn.nn.gin_conv import name_of
from bitgnn.nn.linear import with_binary_maps
from bitgnn.nn.precision import LayerPrecision


class GINEConv(torch_geometric.nn.GINEConv):
    r"""PyG's ``GINEConv`` whose MLP can be binary.

    * ``"fp32"``: :math:`\mathrm{nn}((1 + \epsilon) x_i + \sum_{j \in N(i)} \mathrm{ReLU}(x_j +
      e_{ji}))`, PyG's own code.
    * ``"bin"`` or ``"full"``: the linear maps of ``nn`` become :class:`~bitgnn.nn.Linear`. The
      messages stay floats, since each has an edge of its own in it; their sums, hardly ever below
      0, are 8-bit rows of the first map.

    Source: Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020.

    Args:
        nn: the MLP; binary precisions put their layers into it.
        eps: initial value of epsilon.
        train_eps: train it.
        edge_dim: as in PyG.
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        dropout: probability of dropping an input of a binary map, in training.
        **kwargs: further arguments of PyG's ``MessagePassing``.

    Raises:
        ValueError: unknown precision.
    """

    propagate_type = {"x": OptPairTensor, "edge_attr": OptTensor}  # noqa: RUF012

    def __init__(
        self,
        nn: nn.Module,
        eps: float = 0.0,
        train_eps: bool = False,
        edge_dim: int | None = None,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(nn, eps, train_eps, edge_dim, **kwargs)
        self.precision = name_of("GINEConv", precision)
        if self.precision != "fp32":
            module: Any = self
            module.nn = with_binary_maps(nn, self.precision, dropout)
