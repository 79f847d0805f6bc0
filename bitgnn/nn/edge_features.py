"""Features of edges beside packed nodes: their order in an adjacency, and scores of attention."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.utils import add_self_loops, is_sparse, to_edge_index

from bitgnn.bits import BitAdjacency
from bitgnn.bits.edges import read_edges
from bitgnn.bits.tensor_version import TensorMemory
from bitgnn.nn.adjacencies import MOST_KEPT

PART = 1 << 16
"""Edges whose float projections exist at a time."""
_orders = TensorMemory(MOST_KEPT)
"""Graphs whose edges have features, and the edge of each entry."""


class EdgeOrder(NamedTuple):
    """A graph of ``N`` nodes whose entries are its edges, each of them as often as it occurs."""

    adjacency: BitAdjacency
    order: Tensor
    """``[E']``: the place of each entry among edges and loops."""
    edges: Tensor
    """``[2, E]`` without loops, where there are added ones."""
    kept: Tensor
    """``[E]``: the places of these among the given edges."""


@torch.compiler.disable(reason="fullgraph needs a BitAdjacency in place of the edges")
def edge_order(
    edge_index: Any,
    num_nodes: int,
    loops: bool = False,
    flow: str = "source_to_target",
    who: str = "edge_order",
) -> EdgeOrder:
    """The entries of a graph, of the nodes' loops alone with ``loops``; kept for the same edges.

    Args:
        edge_index: ``[2, E]`` edge index, or a transposed sparse adjacency, whose entries are the
            edges in their order.
        num_nodes: N.
        loops: whether loops are replaced by one of each node, which come last.
        flow: PyG's direction of messages.
        who: what messages begin with.

    Raises:
        ValueError: the edges do not fit the nodes.
    """

    def build() -> EdgeOrder:
        if is_sparse(edge_index):
            (rows, columns), _ = to_edge_index(edge_index)
            edges = torch.stack([columns, rows])
        else:
            edges = edge_index.as_subclass(Tensor)
        kept = torch.arange(edges.size(1), device=edges.device)
        if loops:
            kept = (edges[0] != edges[1]).nonzero().flatten()
        edges = edges[:, kept]
        looped = add_self_loops(edges, num_nodes=num_nodes)[0] if loops else edges
        looped = looped if flow == "source_to_target" else looped.flip(0)
        found = read_edges(looped, num_nodes, None, who)
        counts = torch.bincount(found.rows, minlength=num_nodes)
        rowptr = functional.pad(counts.cumsum(0), (1, 0))
        order = torch.argsort(found.rows, stable=True)
        adjacency = BitAdjacency(rowptr, found.columns[order].int(), num_nodes)
        return EdgeOrder(adjacency, order, edges, kept)

    made: EdgeOrder = _orders.get((edge_index,), (num_nodes, loops, flow), build)
    return made


def ordered_features(
    num_nodes: int,
    edge_index: Any,
    edge_attr: Tensor,
    loops: bool,
    fill_value: float | Tensor | str,
    flow: str,
) -> Tensor:
    """Features ``[E', D]`` of the entries of :func:`edge_order`, with PyG's ones of loops.

    ``edge_attr`` is ``[E, D]`` or ``[E]``, a row for each edge.

    Raises:
        ValueError: it has another number of rows.
    """
    found = edge_order(edge_index, num_nodes, loops, flow)
    edge_attr = edge_attr.detach()
    edge_attr = edge_attr.unsqueeze(1) if edge_attr.dim() == 1 else edge_attr
    edges = int(edge_index.size(1)) if not is_sparse(edge_index) else len(found.kept)
    if len(edge_attr) != edges:
        raise ValueError(f"edge_attr must have {edges} rows like the edges, got {len(edge_attr)}")
    features = edge_attr[found.kept] if loops else edge_attr
    if loops:
        options: Any = {"fill_value": fill_value, "num_nodes": num_nodes}
        looped: Any = add_self_loops(found.edges, features, **options)[1]
        features = looped
    return features[found.order]


def scores_of_pairs(
    left: Tensor,
    right: Tensor,
    adjacency: BitAdjacency,
    features: Tensor,
    weight: Tensor,
    att: Tensor,
    negative_slope: float,
) -> Tensor:
    r"""Scores ``[E, H]`` of GATv2, some edges at a time.

    :math:`\sum_{k \in h} a_k\, \mathrm{leaky\_relu}(l_{jk} + r_{ik} + (W e)_k)` of projections
    ``[N, H * C]`` of both ends and features ``[E, D]`` in the order of the adjacency; ``att`` is
    ``[H, C]``, ``weight`` ``[H * C, D]``.
    """
    parts = []
    ends = adjacency.to_edge_index().split(PART, 1)
    for (source, target), some in zip(ends, features.split(PART), strict=True):
        sums = left[source] + right[target] + functional.linear(some, weight)
        sums = functional.leaky_relu(sums, negative_slope)
        parts.append((sums.view(-1, *att.shape) * att).sum(2))
    return torch.cat(parts) if parts else left.new_zeros(0, att.size(0))


def graph_scores_of_pairs(
    left: Tensor,
    right: Tensor,
    edge_index: Any,
    features: Tensor,
    weight: Tensor,
    att: Tensor,
    negative_slope: float,
    loops: bool,
    flow: str,
) -> Tensor:
    """:func:`scores_of_pairs` of a graph as :func:`edge_order` takes it."""
    adjacency = edge_order(edge_index, left.size(0), loops, flow).adjacency
    return scores_of_pairs(left, right, adjacency, features, weight, att, negative_slope)
