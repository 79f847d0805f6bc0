"""Graphs for benchmarks: Flickr's real structure where present, and a named synthetic one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bitgnn.data import DataError
from bitgnn.data.files import data_root

REDDIT = (232_965, 114_500_000, 21_657)
"""Nodes, edges and largest in-degree of Reddit."""
TAIL_INDEX = 1.5
FLICKR_FILE = Path("flickr") / "raw" / "adj_full.npz"


@dataclass(frozen=True)
class Graph:
    """A CSR pattern, rows = destinations.

    Attributes:
        name: Shown in tables; says so when the graph is synthetic.
        rowptr: int64 ``[N + 1]``.
        indices: int64 ``[E]``, ascending in each row.
    """

    name: str
    rowptr: Tensor
    indices: Tensor

    @property
    def num_nodes(self) -> int:
        """Number of rows and of columns."""
        return self.rowptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """Number of stored entries."""
        return self.indices.numel()

    def edge_index(self) -> Tensor:
        """int64 ``[2, E]``: sources above, destinations below, ordered by destination."""
        rows = torch.repeat_interleave(torch.arange(self.num_nodes), self.rowptr.diff())
        return torch.stack([self.indices, rows])


def load_flickr(root: str | Path | None) -> Graph:
    """Flickr's adjacency (89 250 nodes, 899 756 edges) from ``root/flickr/raw/adj_full.npz``."""
    import scipy.sparse as sp

    path = data_root(root) / FLICKR_FILE
    if not path.is_file():
        raise DataError(f"Flickr: {path} not found")
    matrix = sp.load_npz(path).tocsr()
    matrix.sort_indices()
    rowptr = torch.from_numpy(matrix.indptr.astype(np.int64))
    return Graph("Flickr", rowptr, torch.from_numpy(matrix.indices.astype(np.int64)))


def heavy_tailed_graph(
    num_nodes: int,
    num_edges: int,
    *,
    max_degree: int,
    seed: int,
    device: torch.device | str = "cpu",
) -> Graph:
    """A random graph with a clipped Pareto distribution of in-degrees and uniform sources.

    Made on ``device``, where the largest ones take seconds instead of minutes; the generator
    differs between devices, so graphs are the same only on the same kind of device.
    """
    generator = torch.Generator(device).manual_seed(seed)
    uniform = torch.rand(num_nodes, generator=generator, device=device, dtype=torch.float64)
    weights = (1.0 - uniform) ** (-1.0 / TAIL_INDEX)
    degrees = (weights * (num_edges / weights.sum())).clamp(max=max_degree)
    # Clipping took edges away: the others share them out again, a few rounds settle it.
    for _ in range(20):
        degrees = (degrees * (num_edges / degrees.sum())).clamp(max=max_degree)
    counts = degrees.round().long()
    rowptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=device)
    torch.cumsum(counts, 0, out=rowptr[1:])
    rows = torch.repeat_interleave(torch.arange(num_nodes, device=device), counts)
    columns = torch.randint(
        num_nodes, (len(rows),), generator=generator, device=device, dtype=torch.int64
    )
    keys = torch.sort(rows * num_nodes + columns).values
    name = f"synthetic ({num_nodes} nodes, {len(rows)} edges)"
    return Graph(name, rowptr, keys % num_nodes)


def power_law_graph(num_nodes: int, num_edges: int, *, exponent: float, seed: int) -> Graph:
    """A random graph whose in-degrees follow a power law; sources are uniform.

    Destinations are drawn with probabilities proportional to Pareto weights of tail index
    ``exponent - 1``; duplicates may occur and are kept, as in the formats under test.
    """
    generator = np.random.default_rng(seed)
    weights = generator.pareto(exponent - 1.0, num_nodes) + 1.0
    degrees = generator.multinomial(num_edges, weights / weights.sum())
    rowptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(degrees, out=rowptr[1:])
    rows = np.repeat(np.arange(num_nodes, dtype=np.int64), degrees)
    columns = generator.integers(0, num_nodes, num_edges)
    # One sort of (row, column) keys puts the columns of every row in order.
    columns = np.sort(rows * num_nodes + columns) - rows * num_nodes
    name = f"synthetic power law ({num_nodes} nodes, {num_edges} edges)"
    return Graph(name, torch.from_numpy(rowptr), torch.from_numpy(columns))
