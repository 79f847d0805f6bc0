"""The adjacency that each layer makes of a graph, made of the rows of one rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency
from bitgnn.bits.edges import Edges
from bitgnn.bits.factors import factors_of
from bitgnn.bits.layouts import pointer_dtype, row_indices
from bitgnn.distributed.places import Places
from bitgnn.distributed.sharding import ShardedAdjacency
from bitgnn.inference.graph import GraphSpec, lay_out


def prepared(
    graph: ShardedAdjacency, specs: tuple[GraphSpec, ...], widths: Sequence[Sequence[int]]
) -> list[tuple[BitAdjacency, ...]]:
    """The adjacencies of each chunk, one for each spec; made once for a graph.

    Degrees are the lengths of whole rows, and those of other ranks' nodes are gathered: factors
    equal those of one process. Dense rows on a GPU are laid out in slices for packed rows of these
    ``widths`` in words.

    Raises:
        ValueError: a layer sums against the edges, or the graph was prepared for a model with one
            adjacency and this one has several.
    """
    key = specs, tuple(map(tuple, widths))
    if key not in graph.derived:
        made = made_for(graph, specs)
        for adjacencies in made:
            for adjacency, words in zip(adjacencies, widths, strict=True):
                lay_out(adjacency, "auto", words)
        graph.derived[key] = made
    found: list[tuple[BitAdjacency, ...]] = graph.derived[key]
    return found


def made_for(
    graph: ShardedAdjacency, specs: tuple[GraphSpec, ...]
) -> list[tuple[BitAdjacency, ...]]:
    """The adjacencies of each chunk without a layout, one for each spec."""
    if not specs:
        return [() for _ in graph.chunks]
    if graph.is_prepared:
        if len(specs) > 1:
            raise ValueError(
                f"parallelize: graph must be sharded from its edges, without factors: the layers "
                f"of this model need {len(specs)} adjacencies"
            )
        return [(chunk,) for chunk in graph.chunks]
    made = [graph.derived.get(spec) or _made(graph, spec) for spec in specs]
    graph.derived.update(zip(specs, made, strict=True))
    return list(zip(*made, strict=True))


def _made(graph: ShardedAdjacency, spec: GraphSpec) -> tuple[BitAdjacency, ...]:
    if spec.flow != "source_to_target":
        raise ValueError(
            f"parallelize: a graph sharded from its edges takes layers with flow "
            f"'source_to_target', got {spec.flow!r}; shard what prepare_graph gives"
        )
    is_gcn = spec.kind == "gcn"
    patterns: Sequence[BitAdjacency] = graph.chunks
    if is_gcn and spec.add_self_loops:
        places, nodes = graph.places, graph.nodes
        numbers = None if nodes is None else places.gather(nodes.to(graph.device))
        patterns = [
            _with_loops(chunk, number, places, numbers) for number, chunk in enumerate(patterns)
        ]
    symmetric, mean = is_gcn and spec.normalize, spec.reduction == "mean"
    factors = [_factors(pattern, symmetric, mean) for pattern in patterns]
    rows = [row for row, _ in factors]
    col: Tensor | None = None
    if symmetric and spec.uses_columns:
        col = graph.places.gather(torch.cat([own for _, own in factors if own is not None]))
    return tuple(
        BitAdjacency._trusted(p.rowptr, p.indices, p.num_cols, row, col)
        for p, row in zip(patterns, rows, strict=True)
    )


def _factors(
    pattern: BitAdjacency, symmetric: bool, mean: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Factors of a chunk's rows as destinations and as sources."""
    none = pattern.indices[:0].long()
    edges = Edges(none, none, None, *pattern.shape)
    row, col = factors_of(edges, pattern.rowptr.diff(), symmetric, mean)
    return row, col


def _with_loops(chunk: BitAdjacency, number: int, places: Places, numbers: Any) -> BitAdjacency:
    """One loop at each node, in the place of those that are there, entries in order."""
    own = places.own(number)
    nodes = torch.arange(own.start, own.stop, device=chunk.device)
    loops = places.of_rows(nodes + places.starts[places.rank])
    rows, columns = row_indices(chunk.rowptr), chunk.indices.long()
    kept = columns != loops[rows]
    rows, columns = torch.cat([rows[kept], nodes - own.start]), torch.cat([columns[kept], loops])
    order = places.rows_at(columns) if numbers is None else numbers[columns]
    columns = columns[(rows << 32 | order).argsort()]
    rowptr = torch.zeros(len(nodes) + 1, dtype=torch.int64, device=chunk.device)
    torch.cumsum(torch.bincount(rows, minlength=len(nodes)), 0, out=rowptr[1:])
    rowptr = rowptr.to(pointer_dtype(len(columns)))
    return BitAdjacency._trusted(rowptr, columns.to(torch.int32), chunk.num_cols)
