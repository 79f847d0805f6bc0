"""Graphs sharded by rows over ranks, aggregated while packed words are exchanged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.bits.layouts import row_indices
from bitgnn.distributed.loading import Partition, load_partition
from bitgnn.distributed.row_order import ORDERS, Order, RowOrder
from bitgnn.distributed.sources import require_factors
from bitgnn.ops import bspmm


@dataclass(frozen=True)
class ShardedAdjacency:
    """Rows of one rank, their columns split into the rank's own ones and all others.

    Attributes:
        own: ``[rows, rows]``, columns of the rank's own nodes.
        remote: ``[rows, W * most]``, the other columns, as places in what :meth:`all_gather`
            gives: ``most`` rows for each of W ranks, padded with zeros.
        partition: the rank's rows as they were loaded, with features, factors and nodes.
        group: processes of the ranks; None is the default group.
    """

    own: BitAdjacency
    remote: BitAdjacency
    partition: Partition
    group: dist.ProcessGroup | None

    def all_gather(self, words: Tensor) -> tuple[Tensor, Any]:
        """Send packed rows ``[rows, words]`` to all ranks and begin to receive theirs.

        Returns:
            Int32 ``[W * most, words]``, complete after ``wait()`` of the second value.
        """
        ranks = len(self.partition.starts) - 1
        padded = words.new_zeros(self.remote.num_cols // ranks, words.size(1))
        padded[: len(words)] = words
        gathered = words.new_empty(self.remote.num_cols, words.size(1))
        work = dist.all_gather_into_tensor(gathered, padded, group=self.group, async_op=True)
        return gathered, work

    def aggregate(self, x: BitTensor) -> Tensor:
        r"""Sum :math:`\sum_j A_{ij} x_j` of the neighbours' +-1 values, factors left out.

        All ranks call it together. Own columns are counted while the others' bits arrive.

        Args:
            x: bits ``[rows, K]`` of the rank's own nodes; a scale is left out.

        Returns:
            Int32 ``[rows, K]``, equal for every number of ranks.

        Raises:
            ValueError: ``x`` has another number of rows.
        """
        if len(x) != self.own.num_cols:
            raise ValueError(
                f"ShardedAdjacency.aggregate: x must have {self.own.num_cols} rows, got {len(x)}"
            )
        gathered, work = self.all_gather(x.words)
        sums = bspmm.bbf(x, self.own, integer=True)
        work.wait()
        others = BitTensor._trusted(gathered, x.size)
        return sums.add_(bspmm.bbf(others, self.remote, integer=True))


def shard_graph(
    edges_or_root: Any,
    mesh: DeviceMesh | None = None,
    *,
    num_nodes: int | None = None,
    order: Order | None = None,
) -> ShardedAdjacency:
    """Take a rank's rows of a graph; all ranks call it with the same arguments.

    Args:
        edges_or_root: the folder of a partition, or a whole graph as a ``BitAdjacency``, an edge
            index or a sparse adjacency, square.
        mesh: one-dimensional mesh of the ranks, whose kind of device the rows move to; None for
            the default group and the CPU.
        num_nodes: nodes of an edge index.
        order: "range" or "dealt" of a whole graph, see :class:`Partitioner`; None is "range". A
            partition has its own.

    Raises:
        FileError: a file of the partition does not fit.
        ValueError: the order or the graph does not suit, or rows are too many for int32 places.
    """
    group = None if mesh is None else mesh.get_group()
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if isinstance(edges_or_root, str | os.PathLike):
        if order is not None:
            raise ValueError(f"shard_graph: order must be None for a partition, got {order!r}")
        found = load_partition(edges_or_root, rank, ranks)
    else:
        found = _rows_of(edges_or_root, num_nodes, rank, ranks, order or "range")
    starts = torch.tensor(found.starts)
    most = int(starts.diff().max())
    if most * ranks >= 2**31:
        raise ValueError(f"shard_graph: {ranks} ranks must have below 2**31 rows, got {most} each")
    columns = found.adjacency.indices.long()
    owner = torch.searchsorted(starts, columns, right=True) - 1
    is_own = owner == rank
    own = _columns(found.adjacency, is_own, columns - found.start, found.end - found.start)
    places = columns - starts[owner] + owner * most
    remote = _columns(found.adjacency, ~is_own, places, most * ranks)
    device = torch.device("cpu" if mesh is None else mesh.device_type)
    return ShardedAdjacency(own.to(device), remote.to(device), found, group)


def _columns(adjacency: BitAdjacency, kept: Tensor, places: Tensor, count: int) -> BitAdjacency:
    """The pattern of some entries, whose columns are at new places."""
    before = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])
    rowptr = before[adjacency.rowptr.long()]
    return BitAdjacency(rowptr, places[kept].to(torch.int32), count, adjacency.row_scale)


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
