"""GINEConv with a binary MLP: PyG's layer plus a precision."""

from __future__ import annotations

from typing import Any

import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.typing import OptPairTensor, OptTensor
from torch_geometric.utils import is_sparse, scatter

from bitgnn.nn.gin_conv import name_of
from bitgnn.nn.linear import Linear, with_binary_maps
from bitgnn.nn.precision import LayerPrecision
from bitgnn.nn.propagation.reductions import whole


class GINEConv(torch_geometric.nn.GINEConv):
    r"""PyG's ``GINEConv`` whose MLP can be binary.

    * ``"fp32"``: :math:`\mathrm{nn}((1 + \epsilon) x_i + \sum_{j \in N(i)} \mathrm{ReLU}(x_j +
      e_{ji}))`, PyG's own code.
    * ``"bin"`` or ``"full"``: the linear maps of ``nn`` become :class:`~bitgnn.nn.Linear`. The
      messages stay floats, since each has an edge of its own in it; their sums, hardly ever below
      0, are 8-bit rows of the first map. A frozen model has the MLP as steps behind the sums.

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


def is_plain(layer: nn.Module) -> bool:
    """True for a GINEConv of PyG's messages and sums whose MLP has binary maps."""
    kind: Any = torch_geometric.nn.GINEConv
    return (
        isinstance(layer, kind)
        and (type(layer).forward, type(layer).message) == (kind.forward, kind.message)
        and type(layer.aggr_module) is torch_geometric.nn.SumAggregation
        and layer.node_dim in (-2, 0)
        and any(isinstance(module, Linear) for module in layer.nn.modules())
    )


def traced_forward(
    layer: Any, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None
) -> Any:
    """The forward of such a layer for traces, which its MLP is part of.

    Raises:
        ValueError: it runs between two sets of nodes, or without features of edges.
    """
    if isinstance(x, tuple | list) or size is not None or edge_attr is None:
        raise ValueError("its messages are between two sets of nodes, or have no edge in them")
    edge_attr = edge_attr if layer.lin is None else layer.lin(edge_attr)
    factor = (1 + layer.eps).detach()
    return layer.nn(sums_beside_edges(x, edge_index, edge_attr, factor, layer.flow))


@whole
def sums_beside_edges(
    x: Tensor, edge_index: Any, edge_attr: Tensor, factor: Tensor, flow: str
) -> Tensor:
    r"""Sums :math:`f x_i + \sum_{j \in N(i)} \mathrm{ReLU}(x_j + e_{ji})`, in PyG's order.

    Args:
        x: ``[N, K]`` floats.
        edge_index: ``[2, E]`` edge index.
        edge_attr: ``[E, K]`` floats.
        factor: f, one number.
        flow: PyG's direction of messages.

    Raises:
        ValueError: the graph is a sparse matrix, or the edges are not as many as their features.
    """
    if is_sparse(edge_index):
        raise ValueError("edge_index must be an edge index beside edge_attr, got a sparse matrix")
    if edge_attr.shape != (edge_index.size(1), x.size(-1)):
        raise ValueError(
            f"edge_attr must be [{edge_index.size(1)}, {x.size(-1)}] like the edges and x, got "
            f"{list(edge_attr.shape)}"
        )
    source, target = (0, 1) if flow == "source_to_target" else (1, 0)
    messages = (x.index_select(-2, edge_index[source]) + edge_attr).relu()
    sums: Tensor = scatter(messages, edge_index[target], -2, x.size(-2), "sum")
    return sums + factor * x
