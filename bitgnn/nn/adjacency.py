"""Turns what PyG layers accept as a graph into the BitAdjacency a GCN layer aggregates with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import add_remaining_self_loops

from bitgnn.bits import BitAdjacency

__all__ = ["gcn_adjacency"]

IMPROVED_SELF_LOOP = 2.0


def gcn_adjacency(
    edge_index: Any,
    num_nodes: int,
    edge_weight: Tensor | None = None,
    *,
    normalize: bool = True,
    add_self_loops: bool = True,
    improved: bool = False,
    flow: str = "source_to_target",
) -> BitAdjacency:
    r"""The normalised pattern :math:`\hat D^{-1/2}(A + I)\hat D^{-1/2}` of a GCN layer.

    Args:
        edge_index: ``[2, E]`` integer tensor, or a transposed adjacency (torch sparse CSR or COO
            tensor, ``torch_sparse.SparseTensor``), or PyG's ``EdgeIndex``.
        num_nodes: nodes of the graph.
        edge_weight: ``[E]`` float weights, only beside an edge index.
        normalize: apply the symmetric normalisation.
        add_self_loops: add the missing self loops first.
        improved: added self loops weigh 2; like PyG's, this acts only beside ``edge_weight``.
        flow: PyG's direction of messages.

    Returns:
        A ``BitAdjacency`` of ``[num_nodes, num_nodes]``.

    Raises:
        ValueError: the graph does not fit ``num_nodes``.
    """
    is_index = isinstance(edge_index, Tensor) and edge_index.layout == torch.strided
    if is_index and flow == "target_to_source":
        edge_index = edge_index.flip(0)
    # Without weights PyG's gcn_norm gives every entry the weight 1, improved or not.
    if improved and add_self_loops and edge_weight is not None:
        edge_index, edge_weight = add_remaining_self_loops(
            edge_index, edge_weight, IMPROVED_SELF_LOOP, num_nodes
        )
        add_self_loops = False
    return BitAdjacency.from_edge_index(
        edge_index,
        num_nodes,
        edge_weight=edge_weight,
        normalize="sym" if normalize else None,
        add_self_loops=add_self_loops,
    )
