"""Times of one aggregation with the nodes of a graph in several orders: what locality gives."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitgnn import BitAdjacency, BitTensor
from bitgnn.bits.layouts import row_indices
from bitgnn.data import load
from bitgnn.distributed import PowerLawGraph
from bitgnn.measure.timing import compare
from bitgnn.ops import bspmm

REAL = ("Flickr", "CS", "Photo", "Tolokers", "Minesweeper", "Cornell5")
MADE_UP = {
    "cpu": ((169_343, 1_166_243), (2_449_029, 20_000_000)),
    "cuda": ((2_449_029, 61_859_140), (20_000_000, 300_000_000)),
}
"""Nodes and edges of power laws, by device."""
BITS = (128, 512)
ROUNDS = 8
"""Rounds of label propagation."""
MOST_FOR_CUTHILL_MCKEE = 5_000_000
"""Edges up to which scipy orders a graph in seconds."""


def by_degree(rows: Tensor, columns: Tensor, nodes: int) -> Tensor:
    """Nodes by how often they are read, often ones first."""
    return torch.bincount(columns, minlength=nodes).argsort(descending=True, stable=True)


def cuthill_mckee(rows: Tensor, columns: Tensor, nodes: int) -> Tensor:
    """Reverse Cuthill and McKee 1969, on edges in both directions."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    ends = torch.stack([torch.cat([rows, columns]), torch.cat([columns, rows])]).cpu().numpy()
    matrix = coo_matrix((np.ones(ends.shape[1], np.int8), ends), (nodes, nodes)).tocsr()
    found = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    return torch.from_numpy(found.astype(np.int64)).to(rows.device)


def by_label(rows: Tensor, columns: Tensor, nodes: int) -> Tensor:
    """Communities by label propagation (Raghavan et al. 2007), in each often read nodes first.

    In a round every node takes the label that most of its neighbours have, the least of several.
    """
    ends = torch.cat([rows, columns]), torch.cat([columns, rows])
    labels = torch.arange(nodes, device=rows.device)
    for _ in range(ROUNDS):
        keys, counts = torch.unique(ends[0] * nodes + labels[ends[1]], return_counts=True)
        node = keys // nodes
        order = (counts + node * (int(counts.max()) + 1)).argsort(stable=True)
        last = node[order].bincount(minlength=nodes).cumsum(0) - 1
        has = torch.zeros(nodes, dtype=torch.bool, device=rows.device)
        has[node] = True
        labels = torch.where(has, keys[order[last.clamp(min=0)]] % nodes, labels)
    degree = torch.bincount(columns, minlength=nodes)
    first = degree.argsort(descending=True, stable=True)
    return first[labels[first].argsort(stable=True)]


ORDERS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "random": lambda rows, columns, nodes: torch.randperm(
        nodes, generator=torch.Generator().manual_seed(0)
    ).to(rows.device),
    "degree": by_degree,
    "reverse Cuthill-McKee": cuthill_mckee,
    "label propagation": by_label,
}


def reordered(graph: BitAdjacency, order: Tensor) -> BitAdjacency:
    """The graph whose node ``i`` is ``order[i]``, columns of a row ascending."""
    nodes = graph.shape[0]
    position = torch.empty_like(order)
    position[order] = torch.arange(nodes, device=order.device)
    rows = position[row_indices(graph.rowptr)]
    keys = (rows * nodes + position[graph.indices.long()]).sort().values
    rowptr = torch.zeros(nodes + 1, dtype=torch.int64, device=order.device)
    torch.cumsum(torch.bincount(rows, minlength=nodes), 0, out=rowptr[1:])
    return BitAdjacency(rowptr.to(graph.rowptr.dtype), (keys % nodes).to(torch.int32), nodes)


def graphs(device: str, root: str | None) -> Any:
    """Names and graphs on the device: real structures that are there, and power laws."""
    for name in REAL:
        try:
            data = load(name, root, features="synthetic" if name == "Flickr" else None)
        except Exception as error:  # files that are not there, and nothing to fetch them from
            print(f"{name}: left out, {error}".split("\n")[0])
            continue
        edges: Any = data.edge_index
        yield name, BitAdjacency.from_edge_index(edges.to(device), data.num_nodes)
    for nodes, count in MADE_UP[device]:
        pairs = PowerLawGraph(nodes, count, 0)
        drawn = torch.rand(2, count, dtype=torch.float64, device=device)
        edges = torch.stack([pairs.nodes_at(end) for end in drawn])
        del drawn
        yield f"power law {nodes}", BitAdjacency.from_edge_index(edges, nodes)


def order_records(device: str, root: str | None, repeats: int) -> list[dict[str, Any]]:
    """One record a graph and width: milliseconds of each order, taken in turns."""
    found = []
    for name, graph in graphs(device, root):
        rows, columns, nodes = row_indices(graph.rowptr), graph.indices.long(), graph.shape[0]
        made, seconds = {"given": graph}, {}
        for kind, order in ORDERS.items():
            if kind.startswith("reverse") and graph.nnz > MOST_FOR_CUTHILL_MCKEE:
                continue
            begin = time.perf_counter()
            made[kind] = reordered(graph, order(rows, columns, nodes))
            seconds[kind] = time.perf_counter() - begin
        del rows, columns
        for bits in BITS:
            shape = nodes, bits // 32
            words = torch.randint(-(2**31), 2**31, shape, dtype=torch.int32, device=device)
            x = BitTensor(words, bits)
            calls = {kind: _call(x, one) for kind, one in made.items()}
            times = compare(calls, repeats=repeats, device=device)
            ms = {kind: 1e3 * statistics.median(one.seconds) for kind, one in times.items()}
            found.append({
                "graph": name, "nodes": nodes, "edges": graph.nnz, "bits": bits, "ms": ms,
                "made_s": seconds, "noisy": any(one.noisy for one in times.values()),
            })  # fmt: skip
            print({**found[-1], "made_s": None}, flush=True)
        del made
    return found


def _call(x: BitTensor, graph: BitAdjacency) -> Callable[[], Any]:
    return lambda: bspmm.bbb(x, graph)


def default_root() -> str | None:
    """The folder of data sets beside the checkout, if there is one."""
    folder = Path(__file__).parents[2] / "shared" / "datasets"
    return str(folder) if folder.is_dir() else None
