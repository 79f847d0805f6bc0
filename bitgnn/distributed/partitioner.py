"""Partitioner: a graph of any size to files of its rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from bitgnn._files import alone_in, temporaries
from bitgnn.distributed.counting_sort import Job, Options
from bitgnn.distributed.manifest import MAX_NODES, MAX_PARTS
from bitgnn.distributed.row_order import ORDERS, Order
from bitgnn.distributed.sources import read_source


class Partitioner:
    """Writes a graph as files of rows from which any number of ranks map theirs.

    Named as ``torch_geometric.distributed.Partitioner``. The edges are read twice: to count those
    of each row, and to bring each to its part in a temporary file of 8 bytes an edge, from which
    the parts are sorted one after the other. Memory holds about 32 bytes a node, a block of edges
    and one part, never the edges. What a part's file holds: :func:`load_partition`.

    Args:
        data_or_files: a square graph: PyG's ``Data`` (with its ``x``), a ``BitAdjacency`` with its
            factors, an edge index ``[2, E]`` or a sparse adjacency; the path of an ``.npy`` file
            ``[2, E]`` (sources, destinations), or a pair of paths of files ``[E]``; a folder of
            OGB's raw files (ogbn-arxiv, ogbn-products, ogbn-papers100M), edges as listed there; a
            :class:`PowerLawGraph`.
        num_parts: parts, 1 to 65 536; a multiple of the ranks that will read them.
        root: folder for META.json and the parts.
        num_nodes: nodes; None takes what the source tells: its own number, that of the rows of
            ``x``, or the largest index.
        x: features in place of the source's: ``BitTensor`` or floats ``[N, F]``, whose signs are
            packed; or a path, of floats in an ``.npy`` file or bits of ``PackedFeatureStore``.
        order: ``"range"`` keeps the order of the nodes and cuts it where edges and rows together
            are about equal. ``"dealt"`` sorts the nodes by descending number of incoming edges and
            deals them to the parts in turn, there and back again, so that all parts have equal
            numbers of rows and about equal ones of edges; columns follow, and each part records
            its nodes.
        undirected: add the reverse of each edge and hold every edge once, as PyG's
            ``to_undirected``.
        add_self_loops: one loop a node, as PyG's ``add_remaining_self_loops``.
        normalize: "sym" or "mean" for the factors of ``BitAdjacency.from_edge_index``.

    Raises:
        TypeError: a tensor has another dtype or type.
        ValueError: an option is wrong, the graph is not square or has weights, or an index lies
            outside of the nodes.
    """

    def __init__(
        self,
        data_or_files: Any,
        num_parts: int,
        root: str | os.PathLike[str],
        *,
        num_nodes: int | None = None,
        x: Any = None,
        order: Order = "range",
        undirected: bool = False,
        add_self_loops: bool = False,
        normalize: Literal["sym", "mean"] | None = None,
    ) -> None:
        if isinstance(num_parts, bool) or not isinstance(num_parts, int):
            raise TypeError(f"Partitioner: num_parts must be an int, got {num_parts!r}")
        if not 1 <= num_parts <= MAX_PARTS:
            raise ValueError(f"Partitioner: num_parts must be 1 to {MAX_PARTS}, got {num_parts}")
        if num_nodes is not None and not 0 <= num_nodes <= MAX_NODES:
            raise ValueError(f"Partitioner: num_nodes must be 0 to {MAX_NODES}, got {num_nodes}")
        if order not in ORDERS:
            raise ValueError(f"Partitioner: order must be one of {ORDERS}, got {order!r}")
        if normalize not in (None, "sym", "mean"):
            raise ValueError(
                f"Partitioner: normalize must be None, 'sym' or 'mean', got {normalize!r}"
            )
        self.source = read_source(data_or_files, num_nodes, x)
        has_factors = self.source.row_scale is not None or self.source.col_scale is not None
        if has_factors and (undirected or add_self_loops or normalize):
            raise ValueError(
                "Partitioner: undirected, add_self_loops and normalize must be left out where the "
                "adjacency has factors"
            )
        self.root = Path(root)
        self.options = Options(num_parts, order, undirected, add_self_loops, normalize)

    def generate_partition(self) -> None:
        """Write the parts, and META.json in the end.

        After an interruption the same call goes on and keeps the parts that are finished.

        Raises:
            OutputError: the folder cannot be used, or holds another job's partition.
            FileError: a file cannot be read, or changed meanwhile.
            ValueError: an index lies outside of the nodes, or features have other rows.
        """
        with alone_in(self.root):
            for leftover in temporaries(self.root, "*"):
                leftover.unlink(missing_ok=True)
            Job(self.source, self.options, self.root).run()
