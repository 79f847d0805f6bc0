"""Weights of an adjacency: row and column factors where these suffice, else values of edges."""

from typing import NamedTuple

import torch
from torch import Tensor

from bitgnn.bits.edges import Edges, add_remaining_self_loops, drop_zeros
from bitgnn.bits.patterns import ordered_pattern_of, pattern_of

BLOCK = 1 << 24
"""Nodes whose factors are made together, some of it in float64."""


class Factors(NamedTuple):
    """Row factors [M] and column factors [N], None for 1."""

    row_scale: Tensor | None
    col_scale: Tensor | None


def compressed(
    edges: Edges, symmetric: bool, mean: bool, add_self_loops: bool
) -> tuple[Tensor | None, ...]:
    """Row pointer, columns, row factors, column factors and values; the last or both factors None.

    Edges of weight 0 are left out unless their weight takes a gradient.
    """
    if edges.weight is not None:
        edges = edges._replace(rows=edges.rows.long(), columns=edges.columns.long())
    if edges.weight is not None and add_self_loops:
        edges, add_self_loops = add_remaining_self_loops(edges), False
    entries = edges if takes_gradient(edges.weight) else drop_zeros(edges)
    shared = None if entries.weight is None else weights_of_rows(entries)
    if entries.weight is None or shared is not None:
        rowptr, indices = pattern_of(entries, add_self_loops)
        count = rowptr.diff() if entries is edges else _count(edges)
        row, col = factors_of(entries, count, symmetric, mean)
        return rowptr, indices, times(shared, row), col, None
    rowptr, indices, order = ordered_pattern_of(entries)
    values = entries.weight.float()
    row, col = factors_of(entries, _count(edges), symmetric, mean)
    values = values if row is None else values * row[entries.rows]
    values = values if col is None else values * col[entries.columns]
    return rowptr, indices, None, None, values[order]


def _count(edges: Edges) -> Tensor:
    return torch.bincount(edges.rows, minlength=edges.num_rows)


def factors_of(edges: Edges, count: Tensor, symmetric: bool, mean: bool) -> Factors:
    """The normalisation, if any.

    ``count`` ``[M]`` is the number of edges into a node, those of weight 0 among them: a mean
    divides by it, a symmetric normalisation by degrees.
    """
    row = col = None
    if symmetric:
        row = col = symmetric_factor(_degree(edges, count))
    if mean:
        row = times(row, _mean_factor(count))
    return Factors(row, col)


def weights_of_rows(edges: Edges) -> Tensor | None:
    """Float32 ``[M]``: the weight of all edges into a node, 0 without any; None where they differ.

    Weights that take a gradient belong to single edges.
    """
    assert edges.weight is not None
    if takes_gradient(edges.weight):
        return None
    weight = edges.weight.float()
    shared = torch.zeros(edges.num_rows, device=weight.device, dtype=torch.float32)
    shared[edges.rows] = weight
    return shared if bool((weight == shared[edges.rows]).all()) else None


def takes_gradient(weight: Tensor | None) -> bool:
    """True if a gradient may be asked for."""
    return weight is not None and weight.requires_grad and torch.is_grad_enabled()


def times(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Product of factors; None stands for 1."""
    if a is None or b is None:
        return b if a is None else a
    return a * b


def _degree(edges: Edges, count: Tensor) -> Tensor:
    """``[M]``: the sum of weights into a node, or the number of edges; duplicates counted."""
    if edges.weight is None:
        return count
    # In float64, so that the order in which a GPU adds up is lost in rounding.
    degree = torch.zeros(edges.num_rows, device=edges.rows.device, dtype=torch.float64)
    degree = degree.index_add(0, edges.rows, edges.weight.double()).float()
    least = degree.min() if len(degree) else 0.0
    if least < 0:
        raise ValueError(
            "BitAdjacency: normalize='sym' has no root of a negative degree; the edge weights into "
            f"node {int(degree.argmin())} add up to {float(least):.6g}"
        )
    return degree


def symmetric_factor(degree: Tensor) -> Tensor:
    """Float32 ``[N]``: ``degree ** -1/2``, 0 where infinite.

    As ``torch_geometric.nn.conv.gcn_conv.gcn_norm``; ``degree`` is the number of edges into a
    node, or the sum of their weights. Root and reciprocal are rounded the same way everywhere,
    unlike the power: graphs converted on the CPU and on a GPU have equal factors.
    """
    if len(degree) > BLOCK:
        whole = torch.empty(len(degree), dtype=torch.float32, device=degree.device)
        for part, found in zip(degree.split(BLOCK), whole.split(BLOCK), strict=True):
            found.copy_(symmetric_factor(part))
        return whole
    # float64 on the way: not every library rounds float32 roots correctly.
    held = degree != 0  # a root has no slope at 0
    factor = torch.where(held, degree, 1).float().double().sqrt().float().reciprocal()
    return torch.where(held, factor, 0.0)


def _mean_factor(count: Tensor) -> Tensor:
    """Float32 ``[M]``: 1 / number of edges into a node, 0 where none.

    As PyG's mean aggregation, weights do not enter the number.
    """
    degree = count.float()
    return torch.where(degree > 0, 1 / degree, 0.0)
