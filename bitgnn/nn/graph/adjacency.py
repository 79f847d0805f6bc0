"""Turns what PyG layers accept as a graph into the BitAdjacency a layer aggregates with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import add_remaining_self_loops, is_sparse, to_edge_index

from bitgnn.bits import BitAdjacency
from bitgnn.bits.tensor_version import TensorMemory

__all__ = [
    "Reduction", "gcn_adjacency", "kept_adjacencies", "kept_adjacency", "neighbour_adjacency",
]  # fmt: skip

Reduction = Literal["add", "mean"]

IMPROVED_SELF_LOOP = 2.0

MOST_KEPT = 8
"""Adjacencies that are kept for edges that are still there."""

_kept = TensorMemory(MOST_KEPT)


@torch.compiler.disable(reason="fullgraph needs a BitAdjacency in place of the edges")
def kept_adjacency(
    make: Callable[..., BitAdjacency],
    edge_index: Any,
    edge_weight: Tensor | None,
    *sizes: int,
    **options: Any,
) -> BitAdjacency:
    """The adjacency of dense edges, made once for all layers and steps that take the same tensors.

    It is made anew once these are others or have been written to, and goes with them.

    Args:
        make: :func:`gcn_adjacency` or :func:`neighbour_adjacency`.
        edge_index: graph as ``make`` takes it.
        edge_weight: ``[E]`` float weights, only beside an edge index.
        *sizes: numbers of nodes, as ``make`` takes them.
        **options: keyword arguments of ``make``.
    """
    found: BitAdjacency = _kept.get(
        (edge_index, edge_weight),
        (make, sizes, tuple(options.items())),
        lambda: make(edge_index, *sizes, edge_weight, **options),
    )
    return found


def kept_adjacencies() -> tuple[Any, ...]:
    """All that are kept now, for whoever goes on reading them without asking."""
    return _kept.values()


# Building a pattern depends on the edges' values: a compiled graph breaks here, once.
@torch.compiler.disable(reason="fullgraph needs a BitAdjacency in place of the edges")
def gcn_adjacency(
    edge_index: Any,
    num_nodes: int,
    edge_weight: Tensor | None = None,
    *,
    normalize: bool = True,
    add_self_loops: bool = True,
    improved: bool = False,
    flow: str = "source_to_target",
    reduction: Reduction = "add",
) -> BitAdjacency:
    r"""The normalised pattern :math:`\hat D^{-1/2}(A + I)\hat D^{-1/2}` of a GCN layer.

    Args:
        edge_index: ``[2, E]`` integer tensor, or a transposed adjacency (torch sparse CSR or COO
            tensor, ``torch_sparse.SparseTensor``), or PyG's ``EdgeIndex``.
        num_nodes: nodes of the graph.
        edge_weight: ``[E]`` float weights, only beside an edge index.
        normalize: apply the symmetric normalisation.
        add_self_loops: add self loops first, in each form of the graph as PyG's ``gcn_norm`` does:
            to an edge index the missing ones, to a torch sparse tensor one for every node;
            those of a ``SparseTensor`` replace what its diagonal held.
        improved: added self loops weigh 2; like PyG's, this acts beside ``edge_weight`` and on
            sparse matrices.
        flow: PyG's direction of messages.
        reduction: ``"mean"`` divides each row by its number of entries.

    Returns:
        A ``BitAdjacency`` of ``[num_nodes, num_nodes]``.

    Raises:
        ValueError: the graph does not fit ``num_nodes``, or a sparse matrix is to be read against
            its direction.
    """
    graph = _oriented(edge_index, flow)
    if add_self_loops and is_sparse(graph):
        graph, edge_weight = _sparse_with_loops(graph, edge_weight, num_nodes, improved)
        add_self_loops = False
    # Without weights PyG's gcn_norm gives every entry of an edge index the weight 1.
    elif add_self_loops and improved and edge_weight is not None:
        graph, edge_weight = add_remaining_self_loops(
            graph, edge_weight, IMPROVED_SELF_LOOP, num_nodes
        )
        add_self_loops = False
    adjacency = BitAdjacency.from_edge_index(
        graph,
        num_nodes,
        edge_weight=edge_weight,
        normalize="sym" if normalize else None,
        add_self_loops=add_self_loops,
    )
    return _divided_by_degree(adjacency) if reduction == "mean" else adjacency


@torch.compiler.disable(reason="fullgraph needs a BitAdjacency in place of the edges")
def neighbour_adjacency(
    edge_index: Any,
    num_destinations: int,
    num_sources: int,
    edge_weight: Tensor | None = None,
    *,
    reduction: Reduction,
    flow: str = "source_to_target",
) -> BitAdjacency:
    """The pattern of a sum or mean over neighbours, weights factorised.

    Args:
        edge_index: graph as for :func:`gcn_adjacency`.
        num_destinations: nodes that receive, the rows.
        num_sources: nodes that send, the columns.
        edge_weight: ``[E]`` float weights, only beside an edge index.
        reduction: sum, or mean by the number of edges (weights do not enter the number).
        flow: PyG's direction of messages.

    Returns:
        A ``BitAdjacency`` of ``[num_destinations, num_sources]``.

    Raises:
        ValueError: the graph does not fit the numbers of nodes, or a sparse matrix is to be read
            against its direction.
    """
    return BitAdjacency.from_edge_index(
        _oriented(edge_index, flow),
        (num_destinations, num_sources),
        edge_weight=edge_weight,
        normalize="mean" if reduction == "mean" else None,
    )


def _oriented(graph: Any, flow: str) -> Any:
    """The graph with sources first, or a sparse matrix whose rows are destinations."""
    if flow == "source_to_target":
        return graph
    if is_sparse(graph):
        raise ValueError(
            "flow 'target_to_source' needs an edge index, got a sparse matrix; "
            "pass its transpose with flow 'source_to_target' instead"
        )
    return graph.flip(0)


def _sparse_with_loops(
    graph: Any, edge_weight: Tensor | None, num_nodes: int, improved: bool
) -> tuple[Tensor, Tensor | None]:
    """Edges and weights of a sparse matrix and its self loops; no weights where all are 1."""
    if edge_weight is not None:
        raise ValueError("edge_weight must be None with a sparse matrix, which holds its own")
    if (graph.size(0), graph.size(1)) != (num_nodes, num_nodes):
        raise ValueError(
            f"a sparse graph must be {num_nodes} x {num_nodes} like the nodes, "
            f"got {graph.size(0)} x {graph.size(1)}"
        )
    (rows, columns), weight = to_edge_index(graph)
    if isinstance(graph, SparseTensor):
        kept = rows != columns
        rows, columns, weight = rows[kept], columns[kept], weight[kept]
    nodes = torch.arange(num_nodes, device=rows.device)
    edges = torch.stack([torch.cat([columns, nodes]), torch.cat([rows, nodes])])
    if not improved and bool((weight == 1).all()):
        return edges, None
    loops = weight.new_full((num_nodes,), IMPROVED_SELF_LOOP if improved else 1.0)
    return edges, torch.cat([weight, loops])


def _divided_by_degree(adjacency: BitAdjacency) -> BitAdjacency:
    """Every row divided by its number of entries."""
    degree = torch.diff(adjacency.rowptr).float().clamp_(min=1.0)
    row = degree.reciprocal() if adjacency.row_scale is None else adjacency.row_scale / degree
    divided = BitAdjacency(
        adjacency.rowptr, adjacency.indices, adjacency.num_cols, row, adjacency.col_scale
    )
    divided.factorization_error = adjacency.factorization_error
    return divided
