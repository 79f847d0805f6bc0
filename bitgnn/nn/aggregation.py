"""The BitAdjacency that a layer makes of its graph, and sums of floats and integers over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import add_remaining_self_loops, is_sparse, to_edge_index

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency
from bitgnn.bits.edges import read_edges
from bitgnn.bits.factors import takes_gradient
from bitgnn.bits.layouts import row_indices
from bitgnn.bits.tensor_version import TensorMemory
from bitgnn.nn.spread import SpreadPattern
from bitgnn.ops.weighted import weighted_sums

Reduction = Literal["add", "mean"]

IMPROVED_SELF_LOOP = 2.0

MOST_KEPT = 64
"""Adjacencies that are kept for edges that are still there: two dozen relations have as many."""

_kept = TensorMemory(MOST_KEPT)

PRODUCT_EDGES = 1 << 16
"""Edges whose two rows are multiplied at a time in the gradient of their weights."""


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


class _Aggregate(torch.autograd.Function):
    """Linear in ``x``: the backward pass is the function itself on the transposed pattern.

    Second and higher derivatives are therefore right as well.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor | None, operands: tuple[Tensor | None, ...]
    ) -> Tensor:
        rowptr, indices, row, col = operands[:4]
        ctx.save_for_backward(*operands)
        bias = None if bias is None else bias.float()
        out = torch.ops.bitgnn.bspmm_fbf(x.float(), rowptr, indices, row, col, bias, trusted=True)
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rowptr, indices, row, col, back_rowptr, back_indices = ctx.saved_tensors
        grad_x = grad_bias = None
        if ctx.needs_input_grad[0]:
            transposed = (back_rowptr, back_indices, col, row, rowptr, indices)
            grad_x = _Aggregate.apply(grad.contiguous(), None, transposed)
        if ctx.needs_input_grad[1]:
            grad_bias = grad.sum(0)
        return grad_x, grad_bias, None


class _AggregateValues(torch.autograd.Function):
    """Linear in ``x`` and values, whose gradients are transposed sums and dot products of rows.

    ``operands`` are row pointer and indices, the same of the transposed pattern, and the entry of
    each of its entries.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        values: Tensor,
        bias: Tensor | None,
        operands: tuple[Tensor | None, ...],
    ) -> Tensor:
        ctx.save_for_backward(x, values, *operands)
        bias = None if bias is None else bias.float()
        csr = (*operands[:2], values.detach())
        out = torch.ops.bitgnn.bspmm_fff(x.float(), *csr, bias, trusted=True)
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, values, rowptr, indices, back_rowptr, back_indices, order = ctx.saved_tensors
        grad_x = grad_values = grad_bias = None
        grad = grad.contiguous()
        if ctx.needs_input_grad[0]:
            inverse = None
            if torch.is_grad_enabled():  # for second derivatives
                inverse = torch.empty_like(order)
                inverse[order] = torch.arange(len(order), device=order.device)
            transposed = (back_rowptr, back_indices, rowptr, indices, inverse)
            grad_x = _AggregateValues.apply(grad, values[order], None, transposed)
        if ctx.needs_input_grad[1]:
            grad_values = _products_of_edges(grad, x, row_indices(rowptr), indices)
        if ctx.needs_input_grad[2]:
            grad_bias = grad.sum(0)
        return grad_x, grad_values, grad_bias, None


def _products_of_edges(a: Tensor, b: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Float32 ``[E]``: the dot product of ``a[rows[e]]`` and ``b[columns[e]]`` of each edge."""
    ends = zip(rows.split(PRODUCT_EDGES), columns.split(PRODUCT_EDGES), strict=True)
    return torch.cat([(a[i].float() * b[j].float()).sum(1) for i, j in ends])


def aggregate(
    x: Tensor,
    adjacency: BitAdjacency,
    bias: Tensor | None = None,
    *,
    use_row: bool = True,
    use_col: bool = True,
) -> Tensor:
    r"""``row_scale * (pattern (col_scale * x)) + bias``, or ``row_scale * (values x) + bias``.

    Gradients reach ``x``, ``bias`` and the values. The forward pass is the operator ``bspmm_fbf``
    or ``bspmm_fff`` itself, so that a frozen layer reproduces it bit for bit; the backward pass is
    the same operator on the transposed pattern. ``x`` is ``[N, K]`` of any float dtype, that of the
    result, and is summed in float32; factors get no gradient. A product on bits cannot ``use_col``.
    """
    if x.size(0) != adjacency.shape[1]:
        raise ValueError(
            f"aggregate: adjacency has {adjacency.shape[1]} columns, x has {x.size(0)} rows"
        )
    if x.device != adjacency.device:
        raise ValueError(f"aggregate: adjacency is on {adjacency.device}, x on {x.device}")
    adjacency.check_written()
    needs_transposed = torch.is_grad_enabled() and x.requires_grad
    transposed = adjacency.transposed() if needs_transposed else (None, None)
    pattern = (adjacency.rowptr, adjacency.indices)
    out: Tensor
    if adjacency.values is not None:
        order = adjacency.transposed_order() if needs_transposed else None
        operands, row = (*pattern, *transposed, order), adjacency.row_scale if use_row else None
        last = bias if row is None else None
        out = _AggregateValues.apply(x.contiguous(), adjacency.values, last, operands)
        if row is None:
            return out
        out = row.unsqueeze(1) * out
        return (out if bias is None else out + bias).to(x.dtype)
    row = adjacency.row_scale if use_row else None
    col = adjacency.col_scale if use_col else None
    out = _Aggregate.apply(x.contiguous(), bias, (*pattern, row, col, *transposed))
    return out


class IntegerProduct(NamedTuple):
    """A product ``scale * dot + shift``: its integers can be summed before scale and shift."""

    words: Tensor
    """Packed input bits, int32 ``[N, ceil(B / 32)]``."""
    weight: Tensor
    """Packed signs of the weights, int32 ``[M, ceil(B / 32)]``."""
    size: int
    """B."""
    scale: Tensor
    """Float32 ``[M]``."""
    shift: Tensor | None
    """Float32 ``[M]``, or None."""
    total: Tensor
    """``[N]``, finite where all of an input row is."""

    def sums(
        self, adjacency: BitAdjacency | SpreadPattern, bias: Tensor | None, use_col: bool
    ) -> Tensor:
        """``row_scale * (scale * pattern (col_scale * dot) + shift * pattern col_scale) + bias``.

        Over values: ``A (scale * dot + shift) + bias``. In the order of frozen models; without
        gradient. Float32 ``[rows, M]``.
        """
        if isinstance(adjacency, SpreadPattern):
            return adjacency.integer_sums(self, bias, use_col)
        adjacency.check_written()
        a, col = adjacency, adjacency.col_scale if use_col else None
        bias = None if bias is None else bias.detach().float()
        if a.values is not None:
            product = (self.words, self.weight, self.size, None, self.scale, self.shift)
            return weighted_sums(torch.ops.bitgnn.bmm_bbf(*product), None, a, bias)
        out: Tensor = torch.ops.bitgnn.bmm_bspmm_narrow(
            self.words, self.weight, self.size, a.rowptr, a.indices, None, self.scale,
            None, None, False, a.row_scale, col, bias, shift=self.shift,
            trusted=True,
        )  # fmt: skip
        return out


class _WithValue(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor) -> Tensor:
        return torch.where(torch.isfinite(x), value.to(x.dtype), x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def with_value(x: Tensor, value: Tensor) -> Tensor:
    """``value``, ``x`` rounded in another order, with the gradient, NaN and infinities of ``x``."""
    out: Tensor = _WithValue.apply(x, value)
    return out
