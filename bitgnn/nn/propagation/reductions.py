"""Sums, means and extremes of neighbours as functions, which frozen models know."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast, get_args

import torch
from torch import Tensor, fx
from torch_geometric.utils import is_sparse, remove_self_loops, scatter

from bitgnn._checks import name_type
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.bits.factors import symmetric_factor
from bitgnn.nn import aggregation
from bitgnn.nn.adjacencies import gcn_adjacency, kept_adjacency, neighbour_adjacency
from bitgnn.nn.inputs.float_inputs import require_floats
from bitgnn.nn.roles.settling import current_flow
from bitgnn.ops import bspmm

F = TypeVar("F", bound=Callable[..., Any])
Reduce = Literal["sum", "mean", "max", "min"]
GraphKind = Literal["gcn", "laplacian"]


def whole(function: F) -> F:
    """Keep a function whole in traces of torch.fx, which see one call of it."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, fx.Proxy):
                return value.tracer.create_proxy("call_function", function, args, kwargs)
        return function(*args, **kwargs)

    return cast(F, call)


@whole
def aggregate(
    x: Tensor | BitTensor,
    graph: Any,
    reduce: Reduce = "sum",
    edge_weight: Tensor | None = None,
) -> Tensor:
    r"""Sum, mean, maximum or minimum of the neighbours' features, for layers of one's own.

    :math:`\mathrm{reduce}_{j \in N(i)} w_{ji} x_j`, in a trained model with gradients for ``x`` and
    ``edge_weight``. A frozen model sums packed bits where ``x`` are signs, such as
    ``bitgnn.quantize.binary_sign`` gives; maximum and minimum of bits are their "or" and "and".
    Both give the same to the bit. A node without neighbours gets 0.

    Args:
        x: ``[N, K]`` or ``[*, N, K]`` floats, or a ``BitTensor`` ``[N, K]``.
        graph: int ``[2, E]`` edge index (sources, destinations); transposed sparse adjacency
            (torch sparse tensor or ``torch_sparse.SparseTensor``), whose values are weights; or a
            ``BitAdjacency``, used as it is. The last two may be ``[M, N]``.
        reduce: ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``; a mean divides by the number of
            edges. ``"mean"`` needs edges or a sparse matrix.
        edge_weight: ``[E]`` floats, beside an edge index.

    Returns:
        ``[N, K]``, ``[*, N, K]`` or ``[M, K]`` floats of the dtype of ``x``, float32 of bits.

    Raises:
        TypeError: ``x`` is neither a tensor of floats nor a ``BitTensor``.
        ValueError: ``reduce`` is unknown, or the graph does not fit ``x``.
    """
    if reduce not in get_args(Reduce):
        known = ", ".join(map(repr, get_args(Reduce)))
        raise ValueError(f"aggregate: reduce must be one of {known}, got {reduce!r}")
    if isinstance(x, BitTensor) and x.scale is not None:
        x = x.to_float()
    if not isinstance(x, Tensor | BitTensor):
        raise TypeError(f"aggregate: x must be a tensor or a BitTensor, got {name_type(x)}")
    require_floats("aggregate", "x", x)
    if isinstance(x, Tensor) and x.dim() < 2:
        raise ValueError(f"aggregate: x must be [N, K], got {list(x.shape)}")
    nodes = x.shape[-2]
    if isinstance(graph, BitAdjacency):
        if reduce == "mean" or edge_weight is not None:
            got = "reduce='mean'" if reduce == "mean" else "edge_weight"
            raise ValueError(
                "aggregate: graph must be an edge index or a sparse matrix with "
                f"{got}, got a BitAdjacency, whose factors are used as they are"
            )
        adjacency = graph
    else:
        sizes = (int(graph.size(0)), int(graph.size(1))) if is_sparse(graph) else (nodes, nodes)
        reduction = "mean" if reduce == "mean" else "add"
        adjacency = kept_adjacency(
            neighbour_adjacency, graph, edge_weight, *sizes, reduction=reduction
        )
    if adjacency.shape[1] != nodes:
        raise ValueError(f"aggregate: graph has {adjacency.shape[1]} sources, x has {nodes} nodes")
    if reduce in ("max", "min"):
        return _extreme(x, adjacency, reduce)
    return bspmm.bbf(x, adjacency) if isinstance(x, BitTensor) else neighbour_sums(x, adjacency)


@whole
def neighbour_sums(x: Tensor, adjacency: BitAdjacency, are_signs: bool = False) -> Tensor:
    """``A x`` of ``[*, N, K]``; the column factor of ``A`` does not act on signs."""
    if x.dim() == 2:
        out = aggregation.aggregate(x, adjacency, use_col=not are_signs)
    else:
        by_node = x.movedim(-2, 0)
        sums = aggregation.aggregate(by_node.flatten(1), adjacency, use_col=not are_signs)
        out = sums.view(-1, *by_node.shape[1:]).movedim(0, -2)
    flow = current_flow()
    if flow is not None:
        flow.follows(out, x)
    return out


def _extreme(x: Tensor | BitTensor, adjacency: BitAdjacency, reduce: Reduce) -> Tensor:
    if isinstance(x, BitTensor):
        if adjacency.values is None and adjacency.row_scale is None:
            return extreme_of_sums(bspmm.bbf(x, adjacency), adjacency, reduce)
        x = x.to_float()
    sources, destinations = adjacency.to_edge_index()
    messages = x.index_select(-2, sources)
    if any(part is not None for part in adjacency.tensors[2:]):
        messages = messages * adjacency.edge_weight().to(x.dtype).unsqueeze(1)
    out: Tensor = scatter(messages, destinations, -2, adjacency.shape[0], reduce)
    flow = current_flow()
    if flow is not None:
        flow.follows(out, x)
    return out


def extreme_of_sums(sums: Tensor, graph: Any, reduce: Reduce) -> Tensor:
    """Maximum or minimum of neighbours' signs by their sums ``[M, K]``; 0 without neighbours.

    Some neighbour is +1 where the sum is above -degree, and all are where it is the degree.
    """
    if not isinstance(graph, BitAdjacency):
        sizes = sums.size(0), int(graph.size(1)) if is_sparse(graph) else sums.size(0)
        graph = kept_adjacency(neighbour_adjacency, graph, None, *sizes, reduction="add")
    degree = graph.rowptr.diff().to(sums.dtype).unsqueeze(1)
    holds = sums > -degree if reduce == "max" else sums == degree
    return torch.where(degree == 0, 0.0, torch.where(holds, 1.0, -1.0)).to(sums.dtype)


@whole
def propagation_graph(
    x: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None = None,
    *,
    kind: GraphKind = "gcn",
    normalize: bool = True,
    add_self_loops: bool = False,
    flow: str = "source_to_target",
) -> BitAdjacency:
    """The normalised adjacency of nodes ``x`` ``[*, N, K]``, kept for dense edges.

    That of :func:`~bitgnn.nn.adjacencies.gcn_adjacency`, or of :func:`laplacian_adjacency`.
    """
    nodes = x.size(-2)
    if isinstance(edge_index, BitAdjacency):
        if edge_index.shape != (nodes, nodes):
            raise ValueError(
                f"edge_index must be {nodes} x {nodes} like the nodes, got a BitAdjacency of "
                f"{edge_index.shape[0]} x {edge_index.shape[1]}"
            )
        return edge_index
    if kind == "laplacian":
        return kept_adjacency(laplacian_adjacency, edge_index, edge_weight, nodes, flow=flow)
    options: dict[str, Any] = {"normalize": normalize, "add_self_loops": add_self_loops}
    return kept_adjacency(gcn_adjacency, edge_index, edge_weight, nodes, flow=flow, **options)


@torch.compiler.disable(reason="fullgraph needs a BitAdjacency in place of the edges")
def laplacian_adjacency(
    edge_index: Tensor,
    num_nodes: int,
    edge_weight: Tensor | None = None,
    *,
    flow: str = "source_to_target",
) -> BitAdjacency:
    r""":math:`D^{-1/2} A D^{-1/2}` without self loops: the identity minus PyG's Laplacian.

    As in PyG's ``get_laplacian``, degrees are those of the sources.
    """
    if is_sparse(edge_index):
        raise ValueError("edge_index must be an edge index, got a sparse matrix")
    edges, weight = remove_self_loops(edge_index.as_subclass(Tensor), edge_weight)
    ones = torch.ones(edges.size(1), device=edges.device, dtype=torch.float32)
    given = ones if weight is None else weight.float()
    degree = given.new_zeros(num_nodes).index_add(0, edges[0], given)
    factor = symmetric_factor(degree)
    sides = edges if flow == "source_to_target" else edges.flip(0)
    if weight is not None:
        products = factor[edges[0]] * given * factor[edges[1]]
        return BitAdjacency.from_edge_index(sides, num_nodes, edge_weight=products)
    pattern = BitAdjacency.from_edge_index(sides, num_nodes)
    return BitAdjacency(pattern.rowptr, pattern.indices, num_nodes, factor, factor)
