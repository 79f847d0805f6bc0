"""A bipartite graph as a graph of one set of nodes, the sources in front of the destinations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_sparse, to_edge_index

__all__ = ["joined_features", "joined_graph"]


def joined_features(sources: Tensor, destinations: Tensor, reads_destinations: bool) -> Tensor:
    """Features ``[N + M, K]`` of both sets.

    Args:
        sources: ``[N, K]``.
        destinations: ``[M, K]``, of any width where the layer reads none of them.
        reads_destinations: whether it does.
    """
    if not reads_destinations:
        destinations = sources.new_zeros(destinations.size(0), sources.size(1))
    return torch.cat([sources, destinations])


def joined_graph(edges: Any, num_sources: int, num_destinations: int) -> Any:
    """The graph in the same form, with destinations counted from ``num_sources`` on.

    Args:
        edges: ``[2, E]`` edge index, sources first, or sparse adjacency ``[M, N]``, destinations
            first.
        num_sources: N.
        num_destinations: M.

    Raises:
        TypeError: the graph has another form.
    """
    size = num_sources + num_destinations
    if isinstance(edges, SparseTensor):
        row, col, value = edges.coo()
        return SparseTensor(
            row=row + num_sources, col=col, value=value, sparse_sizes=(size, size), is_sorted=True
        )
    if not isinstance(edges, Tensor):
        raise TypeError(
            "FrozenLayer: edge_index must be an edge index or a sparse tensor where x is a pair, "
            f"got {type(edges).__name__}"
        )
    if is_sparse(edges):
        (row, col), value = to_edge_index(edges)
        order = row.argsort(stable=True)
        indices = torch.stack([row + num_sources, col])[:, order]
        # Edges that occur twice count twice, so that nothing may coalesce them.
        return torch.sparse_coo_tensor(indices, value[order], (size, size), is_coalesced=True)
    plain = edges.as_subclass(Tensor)
    return torch.stack([plain[0], plain[1] + num_sources])
