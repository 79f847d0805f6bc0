"""Factors of an adjacency: PyG's normalisation, and factorised edge weights."""

from typing import NamedTuple

import torch
from torch import Tensor

from bitgnn.bits.edges import Edges

_TOLERANCE = 1e-5
"""Relative deviation of an edge up to which a factorisation counts as exact."""
_NEARLY = 1e-3
"""Deviation of a spanning forest's factors that rounding of float32 weights can explain."""
_SWEEPS = 4
"""Averaging passes that spread the forest's accumulated rounding over all edges."""


class Factors(NamedTuple):
    """Row factors [M], column factors [N], both None for 1, and relative Frobenius error."""

    row_scale: Tensor | None
    col_scale: Tensor | None
    error: float


def factors_of(edges: Edges, count: Tensor, symmetric: bool, mean: bool) -> Factors:
    """The normalisation, if any, times the factorised edge weights.

    ``count`` ``[M]`` is the number of edges into a node, those of weight 0 among them: a mean
    divides by it, a symmetric normalisation by degrees.
    """
    row = col = None
    if symmetric:
        row = col = symmetric_factor(_degree(edges, count))
    if mean:
        share = _mean_factor(count)
        row = share if row is None else row * share
    if edges.weight is None:
        return Factors(row, col, 0.0)
    shape = (edges.num_rows, edges.num_cols)
    found = factorize(edges.rows, edges.columns, edges.weight, shape)
    return Factors(_times(found.row_scale, row), _times(found.col_scale, col), found.error)


def _times(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Product of factors; None stands for 1."""
    if a is None or b is None:
        return b if a is None else a
    return a * b


def _degree(edges: Edges, count: Tensor) -> Tensor:
    """``[M]``: the sum of weights into a node, or the number of edges; duplicates counted."""
    if edges.weight is None:
        return count
    degree = torch.zeros(edges.num_rows, device=edges.rows.device, dtype=torch.float32)
    return degree.index_add_(0, edges.rows, edges.weight.float())


def symmetric_factor(degree: Tensor) -> Tensor:
    """Float32 ``[N]``: ``degree ** -1/2``, 0 where infinite.

    As ``torch_geometric.nn.conv.gcn_conv.gcn_norm``; ``degree`` is the number of edges into a
    node, or the sum of their weights. Root and reciprocal are rounded the same way everywhere,
    unlike the power: graphs converted on the CPU and on a GPU have equal factors.
    """
    # float64 on the way: not every library rounds float32 roots correctly.
    factor = degree.float().double().sqrt().float().reciprocal()
    return factor.masked_fill(factor == float("inf"), 0.0)


def _mean_factor(count: Tensor) -> Tensor:
    """Float32 ``[M]``: 1 / number of edges into a node, 0 where none.

    As PyG's mean aggregation, weights do not enter the number.
    """
    degree = count.float()
    return torch.where(degree > 0, 1 / degree, 0.0)


def factorize(rows: Tensor, columns: Tensor, weight: Tensor, shape: tuple[int, int]) -> Factors:
    """Find factors with ``weight[e] = row[rows[e]] * col[columns[e]]``.

    Tried in turn: row factors alone; a rank-one solution; else the mean weight of each row, the
    least-squares row factor. Of the rank-one solutions, which differ by a constant in each
    connected component, the one whose column factors have mean magnitude 1 over the component's
    edges is taken, so that leaving the column factors out (bits times bits) costs least.
    """
    weight = weight.double()
    num_rows, num_cols = shape
    total = _scatter_sum(weight, rows, num_rows)
    count = torch.bincount(rows, minlength=num_rows).clamp(min=1)
    mean = total / count
    if _is_exact(weight, mean[rows]):
        return Factors(mean.float(), None, 0.0)
    # A zero weight forces a whole row or column to zero: only row factors express that safely.
    if bool((torch.isfinite(weight) & (weight != 0)).all()):
        row, col = _rank_one(rows, columns, weight, num_rows, num_cols)
        if _is_exact(weight, row[rows] * col[columns], _NEARLY):
            row, col = _average(rows, columns, weight, row, col)
            if _is_exact(weight, row[rows] * col[columns]):
                return Factors(row.float(), col.float(), 0.0)
    error = (weight - mean[rows]).norm() / weight.norm()
    return Factors(mean.float(), None, float(error))


def _is_exact(weight: Tensor, product: Tensor, tolerance: float = _TOLERANCE) -> bool:
    return bool(((weight - product).abs() <= tolerance * weight.abs()).all())


def _scatter_sum(value: Tensor, index: Tensor, size: int) -> Tensor:
    return torch.zeros(size, dtype=value.dtype, device=value.device).index_add_(0, index, value)


def _average(
    rows: Tensor, columns: Tensor, weight: Tensor, row: Tensor, col: Tensor
) -> tuple[Tensor, Tensor]:
    """Fit row and column factors in turns, each the mean over its edges."""
    row_count = torch.bincount(rows, minlength=len(row))
    col_count = torch.bincount(columns, minlength=len(col))
    for _ in range(_SWEEPS):
        asked = _scatter_sum(weight / col[columns], rows, len(row))
        row = torch.where(row_count > 0, asked / row_count, row)
        asked = _scatter_sum(weight / row[rows], columns, len(col))
        col = torch.where(col_count > 0, asked / col_count, col)
    return row, col


def _rank_one(
    rows: Tensor, columns: Tensor, weight: Tensor, num_rows: int, num_cols: int
) -> tuple[Tensor, Tensor]:
    """Row and column factors that fit a spanning forest of the edges exactly.

    Rows and columns are the nodes of a bipartite graph. Node ``u`` holds a potential relative to
    its root, ``value[u] = factor[u] * value[root[u]]``, with value r for a row and 1/c for a
    column, so an edge says ``value[row] = weight * value[column]``. Roots are hooked onto smaller
    roots through one edge each and paths are halved until flat, as in parallel union-find.
    """
    num_nodes = num_rows + num_cols
    head, tail = rows, columns + num_rows
    root = torch.arange(num_nodes, device=rows.device)
    factor = torch.ones(num_nodes, dtype=torch.float64, device=rows.device)
    edges = torch.arange(len(rows), device=rows.device)
    while True:
        edges = edges[root[head[edges]] != root[tail[edges]]]
        if len(edges) == 0:
            break
        # value[root_h] = step * value[root_t] along each remaining edge.
        u, v = head[edges], tail[edges]
        step = weight[edges] * factor[v] / factor[u]
        high, low = torch.maximum(root[u], root[v]), torch.minimum(root[u], root[v])
        step = torch.where(root[u] == high, step, 1 / step)
        chosen = torch.full((num_nodes,), -1, dtype=torch.int64, device=rows.device)
        position = torch.arange(len(edges), device=rows.device)
        chosen.scatter_reduce_(0, high, position, "amax")
        hooked = (chosen >= 0).nonzero().squeeze(1)
        root[hooked] = low[chosen[hooked]]
        factor[hooked] = step[chosen[hooked]]
        while bool((root[root] != root).any()):
            factor = factor * factor[root]
            root = root[root]
    row, col = factor[:num_rows], 1 / factor[num_rows:]
    component = root[head]
    magnitude = _scatter_sum(col[columns].abs(), component, num_nodes)
    sign = _scatter_sum(col[columns].sign(), component, num_nodes)
    gauge = magnitude / torch.bincount(component, minlength=num_nodes).clamp(min=1)
    gauge = torch.where(magnitude > 0, gauge, 1.0) * torch.where(sign < 0, -1.0, 1.0)
    return row * gauge[root[:num_rows]], col / gauge[root[num_rows:]]
