"""The BitAdjacency that a layer makes of its graph, kept for as long as its edges are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import add_remaining_self_loops, is_sparse, to_edge_index

from bitgnn.bits import BitAdjacency
from bitgnn.bits.edges import read_edges
from bitgnn.bits.factors import takes_gradient
from bitgnn.bits.tensor_version import TensorMemory

Reduction = Literal["add", "mean"]

IMPROVED_SELF_LOOP = 2.0

MOST_KEPT = 64
"""Adjacencies that are kept for edges that are still there: two dozen relations have as many."""

_kept = TensorMemory(MOST_KEPT)


@torch.compiler.disable(reason="fullgraph needs a BitAdjacency in place of the edges")
def kept_adjacency(
    make: Callable[..., BitAdjacency],
    edge_index: Any,
    edge_weight: Tensor | None,
    *sizes: int,
    **options: Any,
) -> BitAdjacency:
    """``make(edge_index, *sizes, edge_weight, **options)``, kept for dense edges.

    It is made once for all layers and steps that take the same tensors, anew once these have been
    written to, and goes with them. ``make`` is :func:`gcn_adjacency` or
    :func:`neighbour_adjacency`. Weights that take a gradient are part of a graph of derivatives,
    which is made for one layer and step.
    """
    if takes_gradient(edge_weight):
        return make(edge_index, *sizes, edge_weight, **options)
    found: BitAdjacency = _kept.get(
        (edge_index, edge_weight),
        (make, sizes, tuple(options.items())),
        lambda: make(edge_index, *sizes, edge_weight, **options),
    )
    return found


def kept_adjacencies() -> tuple[Any, ...]:
    """All adjacencies kept now, for readers that will not ask for them again."""
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

    Self loops come first, in each form of the graph as PyG's ``gcn_norm`` adds them: to an edge
    index the missing ones, to a torch sparse tensor one for every node; those of a
    ``SparseTensor`` replace what its diagonal held. ``improved`` ones weigh 2, like PyG's beside
    ``edge_weight`` and on sparse matrices. A "mean" divides each row by its number of edges,
    whatever they weigh; one of weight 0 is no entry of the pattern.
    """
    graph, name = _oriented(edge_index, flow), "BitAdjacency.from_edge_index"
    if add_self_loops and not improved and _is_csr(graph, num_nodes) and edge_weight is None:
        edges = read_edges(graph, num_nodes, None, name)
        if edges.weight is None and not bool((edges.rows == edges.columns).any()):
            return BitAdjacency._from_edges(edges, normalize, reduction == "mean", True, name)
    if add_self_loops and is_sparse(graph):
        graph, edge_weight = _sparse_with_loops(graph, edge_weight, num_nodes, improved)
        add_self_loops = False
    # Without weights PyG's gcn_norm gives every entry of an edge index the weight 1.
    elif add_self_loops and improved and edge_weight is not None:
        graph, edge_weight = add_remaining_self_loops(
            graph, edge_weight, IMPROVED_SELF_LOOP, num_nodes
        )
        add_self_loops = False
    edges = read_edges(graph, num_nodes, edge_weight, name)
    return BitAdjacency._from_edges(edges, normalize, reduction == "mean", add_self_loops, name)


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
    """The pattern of a sum or mean over neighbours, with their weights.

    A mean divides by the number of edges, whatever they weigh; one of weight 0 is no entry.
    """
    return BitAdjacency.from_edge_index(
        _oriented(edge_index, flow),
        (num_destinations, num_sources),
        edge_weight=edge_weight,
        normalize="mean" if reduction == "mean" else None,
    )


@torch.compiler.disable(reason="fullgraph needs a BitAdjacency in place of the edges")
def relation_adjacency(
    edge_index: Any,
    num_destinations: int,
    num_sources: int,
    edge_type: Tensor | None,
    *,
    relations: int,
    reduction: Reduction,
    flow: str = "source_to_target",
) -> BitAdjacency:
    """Sums over all relations as one: column ``source * relations + type``, ``[M, N * relations]``.

    A "mean" is one of each relation and node: each edge weighs 1 / their number there.
    """
    if isinstance(edge_index, SparseTensor):
        edge_type = edge_index.storage.value()
    if edge_type is None:
        raise ValueError("edge_type must be [E] numbers of relations, got None")
    if is_sparse(edge_index):
        rows, columns = to_edge_index(edge_index)[0]
        edges = torch.stack([columns, rows])
    else:
        edges = _oriented(edge_index, flow).as_subclass(Tensor)
    kinds = edge_type.as_subclass(Tensor)
    if kinds.dim() != 1 or len(kinds) != edges.size(1) or kinds.is_floating_point():
        raise ValueError(
            f"edge_type must be [{edges.size(1)}] integers, got {kinds.dtype} {list(kinds.shape)}"
        )
    if len(kinds) and not 0 <= int(kinds.min()) <= int(kinds.max()) < relations:
        raise ValueError(
            f"edge_type must lie in 0 to {relations - 1}, got {int(kinds.min())} to "
            f"{int(kinds.max())}"
        )
    if edges.numel() and int(edges[0].max()) >= num_sources:
        raise ValueError(
            f"edge_index must lie below {num_sources} sources, got {int(edges[0].max())}"
        )
    groups, weight = edges[1] * relations + kinds, None
    if reduction == "mean" and len(kinds):
        weight = 1.0 / torch.bincount(groups)[groups].float()
    stacked = torch.stack([edges[0] * relations + kinds, edges[1]])
    made = BitAdjacency.from_edge_index(
        stacked, (num_destinations, num_sources * relations), edge_weight=weight
    )
    return made


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


def _is_csr(graph: Any, num_nodes: int) -> bool:
    """Whether this is a square torch CSR of so many nodes, whose int32 indices can stay."""
    is_csr = isinstance(graph, Tensor) and graph.layout == torch.sparse_csr
    return is_csr and tuple(graph.shape) == (num_nodes, num_nodes)


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
