"""Graphs sharded by rows over ranks: each has its rows' neighbours, and gathers all nodes' bits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.bits.layouts import pointer_dtype, row_indices
from bitgnn.distributed.drawing import drawn_bits, drawn_rows, drawn_starts
from bitgnn.distributed.loading import Partition, load_partition
from bitgnn.distributed.manifest import read_manifest
from bitgnn.distributed.places import Places
from bitgnn.distributed.power_law import PowerLawGraph
from bitgnn.distributed.row_order import ORDERS, Order, RowOrder
from bitgnn.distributed.sources import require_factors
from bitgnn.ops import bspmm


@dataclass(frozen=True)
class ShardedAdjacency:
    """Rows of one rank in chunks, over the places of all ranks' nodes.

    Attributes:
        chunks: each ``[rows of the chunk, places]``, with the factors that the graph came with.
        places: where the ranks' nodes lie in what is gathered.
        x: bits of the rank's nodes, if the graph came with features.
        nodes: int64 ``[rows]``, the user's number of each row's node; None where rows are the
            nodes in their order.
        is_prepared: whether self loops and factors, if any, are there, so that models take the
            graph as it is; else they add their own.
        derived: what models made of the chunks.
    """

    chunks: tuple[BitAdjacency, ...]
    places: Places
    x: BitTensor | None
    nodes: Tensor | None
    is_prepared: bool
    derived: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def device(self) -> torch.device:
        """Device of the rows."""
        return self.chunks[0].device

    @property
    def nnz(self) -> int:
        """Edges of the rank."""
        return sum(chunk.nnz for chunk in self.chunks)

    def own_nodes(self) -> Tensor:
        """The user's number of each row's node, int64 ``[rows]`` on the CPU."""
        if self.nodes is not None:
            return self.nodes
        start = self.places.starts[self.places.rank]
        return torch.arange(start, start + self.places.rows)

    def aggregate(self, x: BitTensor) -> Tensor:
        r"""Sum :math:`\sum_j A_{ij} x_j` of the neighbours' +-1 values, factors left out.

        All ranks call it together.

        Args:
            x: bits ``[rows, K]`` of the rank's own nodes; a scale is left out.

        Returns:
            Int32 ``[rows, K]``, equal for every number of ranks.

        Raises:
            ValueError: ``x`` has another number of rows.
            ConnectionError: another rank has ended.
        """
        if len(x) != self.places.rows:
            raise ValueError(
                f"ShardedAdjacency.aggregate: x must have {self.places.rows} rows, got {len(x)}"
            )
        everyone = BitTensor._trusted(self.places.gather(x.words), x.size)
        sums = [bspmm.bbf(everyone, chunk, integer=True) for chunk in self.chunks]
        return sums[0] if len(sums) == 1 else torch.cat(sums)

    def total(self, value: Tensor) -> Tensor:
        """Sum of all ranks' values, on every rank; all ranks call it together.

        A gradient reaches the rank's own value as it is, since those of weights are summed over
        ranks: ``graph.total(loss_of_own_nodes) / graph.total(number_of_own_nodes)`` is the loss.

        Raises:
            ConnectionError: another rank has ended.
        """
        summed = self.places.total(value)
        return summed + (value - value.detach()) if value.requires_grad else summed

    def full_tensor(self, out: Tensor) -> Tensor:
        """Rows of all ranks in the user's order, on every rank; all ranks call it together.

        Args:
            out: ``[rows, *]`` of the rank's own nodes, such as the result of a model.

        Returns:
            ``[N, *]``.

        Raises:
            ValueError: ``out`` has another number of rows.
            ConnectionError: another rank has ended.
        """
        p = self.places
        if out.dim() == 0 or len(out) != p.rows:
            raise ValueError(
                f"ShardedAdjacency.full_tensor: out must have {p.rows} rows, got {list(out.shape)}"
            )
        rows = p.of_rows(torch.arange(p.starts[-1], device=out.device))
        found = p.gather(out)[rows]
        if self.nodes is None:
            return found
        nodes = p.gather(self.nodes.to(out.device))[rows]
        return torch.empty_like(found).index_copy_(0, nodes, found)


def shard_graph(
    edges_or_root: Any,
    mesh: DeviceMesh | None = None,
    *,
    num_nodes: int | None = None,
    order: Order | None = None,
    chunk_rows: int | None = None,
) -> ShardedAdjacency:
    """Take a rank's rows of a graph; all ranks call it with the same arguments.

    Args:
        edges_or_root: the folder of a partition; a whole graph as an edge index, a sparse
            adjacency or a ``BitAdjacency`` such as a model's ``prepare_graph`` gives, square; or a
            :class:`PowerLawGraph`, whose rows each rank draws on its own device.
        mesh: one-dimensional mesh of the ranks, whose kind of device the rows move to; None for
            the default group and the CPU.
        num_nodes: nodes of an edge index.
        order: "range" or "dealt" of a whole graph, see :class:`Partitioner`; None is "range".
            Others have their own.
        chunk_rows: rows that are computed, and sent, at a time; None for about an eighth of a
            rank's, between 2**16 and 2**21.

    Raises:
        FileError: a file of the partition does not fit.
        ValueError: the order or the graph does not suit, or rows are too many for int32 places.
    """
    group = None if mesh is None else mesh.get_group()
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    device = torch.device("cpu" if mesh is None else mesh.device_type)
    if isinstance(edges_or_root, PowerLawGraph):
        _no_order(order, "PowerLawGraph")
        starts = drawn_starts(edges_or_root, ranks)
        places = Places.of(starts, rank, chunk_rows, group)
        drawn = drawn_rows(edges_or_root, places, device)
        made = tuple(_placed(*rows, places, device) for rows in drawn)
        return ShardedAdjacency(
            made, places, drawn_bits(edges_or_root, places, device), None, False
        )
    if isinstance(edges_or_root, str | os.PathLike):
        _no_order(order, "partition")
        found = load_partition(edges_or_root, rank, ranks)
        manifest = read_manifest(Path(edges_or_root))
        is_prepared = manifest.add_self_loops or bool(manifest.factors)
        nodes = None if manifest.order == "range" else found.nodes
    else:
        found = _rows_of(edges_or_root, num_nodes, rank, ranks, order or "range")
        is_prepared = isinstance(edges_or_root, BitAdjacency)
        nodes = found.nodes if order == "dealt" else None
    places = Places.of(found.starts, rank, chunk_rows, group)
    x = None if found.x is None else found.x.to(device)
    col = None if found.col_scale is None else places.gather(found.col_scale.to(device))
    numbers = None if nodes is None else places.gather(nodes.to(device))
    chunks = tuple(
        _placed(rowptr, indices, places, device, row, col, numbers)
        for rowptr, indices, row in _chunks_of(found.adjacency, places)
    )
    return ShardedAdjacency(chunks, places, x, nodes, is_prepared)


def _no_order(order: Any, source: str) -> None:
    if order is not None:
        raise ValueError(f"shard_graph: order must be None for a {source}, got {order!r}")


def _chunks_of(rows: BitAdjacency, places: Places) -> Iterator[tuple[Tensor, Tensor, Any]]:
    """Row pointer, columns and row factors of each chunk."""
    for chunk in range(places.chunks):
        own = places.own(chunk)
        rowptr = rows.rowptr[own.start : own.stop + 1]
        indices = rows.indices[int(rowptr[0]) : int(rowptr[-1])]
        row = None if rows.row_scale is None else rows.row_scale[own]
        yield rowptr - rowptr[0], indices, row


def _placed(
    rowptr: Tensor,
    columns: Tensor,
    places: Places,
    device: torch.device,
    row: Tensor | None = None,
    col: Tensor | None = None,
    numbers: Tensor | None = None,
) -> BitAdjacency:
    """A chunk over places, in memory of its own.

    A row's entries are in the order of the user's ``numbers`` of the nodes: float sums are then
    those of one process.
    """
    at = places.of_rows(columns.to(device).long())
    rowptr = rowptr.to(device, pointer_dtype(len(at)))
    if numbers is not None:
        at = at[(row_indices(rowptr) << 32 | numbers[at]).argsort()]
    indices = at.to(torch.int32)
    row = None if row is None else row.to(device, copy=True)
    return BitAdjacency._trusted(rowptr, indices, places.count, row, col)


def _rows_of(edges: Any, num_nodes: int | None, rank: int, ranks: int, order: Order) -> Partition:
    """The rows that a rank would load from a partition into ``ranks`` parts."""
    whole = edges
    if not isinstance(edges, BitAdjacency):
        whole = BitAdjacency.from_edge_index(edges, num_nodes)
    require_factors("shard_graph", whole)
    if whole.shape[0] != whole.num_cols or order not in ORDERS:
        raise ValueError(
            f"shard_graph: the graph must be square and order one of {ORDERS}, got {whole.shape} "
            f"and {order!r}"
        )
    whole = whole.to("cpu")
    degree = whole.rowptr.diff().long()
    rows = RowOrder.of(degree, ranks, order)
    nodes = rows.nodes(rank)
    rowptr = torch.zeros(len(nodes) + 1, dtype=torch.int64)
    torch.cumsum(degree[nodes], 0, out=rowptr[1:])
    # Entry e of a row lies as far from its first one here as there.
    shift = whole.rowptr[:-1].long()[nodes] - rowptr[:-1]
    row = row_indices(rowptr)
    indices = whole.indices[torch.arange(int(rowptr[-1])) + shift[row]].long()
    if rows.position is not None:
        indices = (row << 32 | rows.position[indices].long()).sort().values & (2**31 - 1)
    factors = [None if f is None else f[nodes] for f in (whole.row_scale, whole.col_scale)]
    adjacency = BitAdjacency(rowptr, indices.to(torch.int32), whole.num_cols, factors[0])
    return Partition(adjacency, None, factors[1], nodes, tuple(rows.starts.tolist()), rank)
