"""Random sparsity patterns with a degree law and homophily, the core of synthetic graphs."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

DegreeLaw = Literal["power_law", "uniform"]

# Clipping takes edges away that the other nodes share out again; a few rounds settle it.
CLIPPING_ROUNDS = 20
# Pairs drawn at once; bounds the memory beside the keys.
CHUNK = 1 << 22
# Loops and duplicates are drawn anew. Where a round leaves many missing, they are the less likely
# pairs, so that each round draws twice as many for each one missing, up to a bound.
FIRST_SURPLUS = 1.05
MAX_SURPLUS = 16.0
LEAST_DRAWN = 1024
MAX_ROUNDS = 60


def expected_degrees(
    num_nodes: int,
    mean_degree: float,
    degree: DegreeLaw = "power_law",
    *,
    exponent: float = 2.5,
    max_degree: int | None = None,
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """Expected degree of each node.

    Args:
        num_nodes: nodes.
        mean_degree: mean of the result.
        degree: ``"power_law"``: density proportional to ``degree ** -exponent`` above a least
            degree (Pareto); ``"uniform"``: the same for all nodes.
        exponent: of the power law, above 1; 2 to 3 in real networks.
        max_degree: bound of the result; None is ``num_nodes - 1``.
        generator: source of random numbers.

    Returns:
        float64 ``[num_nodes]``.

    Raises:
        ValueError: an unknown law, an exponent of at most 1, or a mean above the bound.
    """
    bound = num_nodes - 1 if max_degree is None else max_degree
    if degree not in ("power_law", "uniform"):
        raise ValueError(f"degree must be 'power_law' or 'uniform', got {degree!r}")
    if not exponent > 1.0:
        raise ValueError(f"exponent must be above 1, got {exponent}")
    if mean_degree > bound:
        raise ValueError(
            f"max_degree must be at least the mean degree {mean_degree:.1f}, got {bound}"
        )
    if degree == "uniform" or mean_degree == 0:
        return np.full(num_nodes, float(mean_degree))
    weights = generator.pareto(exponent - 1.0, num_nodes) + 1.0
    degrees: NDArray[np.float64] = weights
    for _ in range(CLIPPING_ROUNDS):
        degrees = np.minimum(degrees * (mean_degree * num_nodes / degrees.sum()), bound)
    return degrees


def random_pattern(
    degrees: NDArray[np.float64],
    num_edges: int,
    *,
    labels: NDArray[np.int64] | None = None,
    homophily: float = 0.0,
    generator: np.random.Generator,
) -> tuple[Tensor, Tensor]:
    """A symmetric pattern without loops and duplicates, and with exactly ``num_edges`` entries.

    Each pair is drawn with probability proportional to the product of its expected degrees
    (Chung and Lu 2002). With ``labels``, a share ``homophily`` of the pairs joins nodes of one
    class and the rest joins different classes, about: pairs drawn twice are drawn anew, which
    takes from the nodes that are joined to most of their class already.

    Args:
        degrees: ``[N]`` expected degrees up to a common factor.
        num_edges: entries of the pattern, both directions of a pair counted, so even.
        labels: ``[N]`` classes from 0, or None for no homophily.
        homophily: share of entries inside classes, in [0, 1].
        generator: source of random numbers; the same one gives the same pattern everywhere.

    Returns:
        ``rowptr`` int64 ``[N + 1]`` and ``indices`` int32 ``[num_edges]``, ascending in each row.

    Raises:
        ValueError: ``num_edges`` is odd, negative, or cannot be placed; ``homophily`` outside
            [0, 1].
    """
    import scipy.sparse as sp

    num_nodes = len(degrees)
    if num_edges < 0 or num_edges % 2:
        raise ValueError(
            f"num_edges must be even, since both directions of an edge count, got {num_edges}"
        )
    if num_edges > num_nodes * (num_nodes - 1):
        raise ValueError(f"num_edges: {num_nodes} nodes cannot have {num_edges} edges")
    if not 0.0 <= homophily <= 1.0:
        raise ValueError(f"homophily must be in [0, 1], got {homophily}")
    drawer = _PairDrawer(degrees, labels, homophily, generator)
    keys = _distinct_pairs(drawer, num_nodes, num_edges // 2, generator)
    rowptr = np.searchsorted(keys, np.arange(num_nodes + 1, dtype=np.int64) * num_nodes)
    indices = (keys % max(num_nodes, 1)).astype(np.int32)
    del keys
    ones = np.ones(len(indices), dtype=np.int8)
    upper = sp.csr_matrix((ones, indices, rowptr), (num_nodes, num_nodes))
    full = (upper + upper.T).tocsr()
    full.sort_indices()
    # scipy chooses wider indices where they are needed for the row pointer.
    narrow = full.indices.astype(np.int32, copy=False)
    return torch.from_numpy(full.indptr.astype(np.int64)), torch.from_numpy(narrow)


def _distinct_pairs(
    drawer: _PairDrawer, num_nodes: int, count: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """``count`` different keys ``u * N + v`` with ``u < v``, ascending."""
    keys = np.empty(0, dtype=np.int64)
    for number in range(MAX_ROUNDS):
        missing = count - len(keys)
        if missing <= 0:
            break
        surplus = min(FIRST_SURPLUS * 2**number, MAX_SURPLUS)
        # Never more at once than in the first round, which bounds the memory.
        wanted = min(int(missing * surplus), int(count * FIRST_SURPLUS))
        drawn = drawer.draw(max(wanted, LEAST_DRAWN))
        keys = np.concatenate([keys, drawn])
        del drawn
        keys.sort()
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys
    if len(keys) < count:
        raise ValueError(
            f"num_edges: only {2 * len(keys)} of {2 * count} edges could be placed among "
            f"{num_nodes} nodes with this degree law and homophily; ask for fewer edges, more "
            "nodes, less homophily or a smaller max_degree"
        )
    extra = generator.choice(len(keys), len(keys) - count, replace=False, shuffle=False)
    return np.delete(keys, extra)


class _PairDrawer:
    """Draws pairs of nodes; works on nodes in the order of their classes."""

    def __init__(
        self,
        degrees: NDArray[np.float64],
        labels: NDArray[np.int64] | None,
        homophily: float,
        generator: np.random.Generator,
    ) -> None:
        self.generator = generator
        self.num_nodes = len(degrees)
        self.homophily = homophily
        self.classes = labels
        self.order = np.arange(self.num_nodes)
        if labels is not None:
            self.order = np.argsort(labels, kind="stable")
            self.classes = labels[self.order]
            counts = np.bincount(labels)
            ends = np.cumsum(counts)
        self.weights = degrees[self.order]
        self.cumulative = np.concatenate([[0.0], np.cumsum(self.weights)])
        if labels is not None:
            self.class_start = self.cumulative[ends - counts]
            self.class_end = self.cumulative[ends]

    def draw(self, count: int) -> NDArray[np.int64]:
        """About ``count`` keys ``u * N + v``, ``u < v``; loops are left out."""
        total = self.cumulative[-1]
        counts = self.generator.multinomial(count, self.weights / total)
        first = np.repeat(np.arange(self.num_nodes, dtype=np.int32), counts)
        pieces = [self._keys(first[start : start + CHUNK]) for start in range(0, len(first), CHUNK)]
        return np.concatenate(pieces)

    def _keys(self, first: NDArray[np.int32]) -> NDArray[np.int64]:
        second = np.searchsorted(self.cumulative, self._positions(first), side="right") - 1
        # The end of the last class may be hit by rounding.
        np.clip(second, 0, self.num_nodes - 1, out=second)
        u, v = self.order[first], self.order[second]
        keys = np.minimum(u, v).astype(np.int64) * self.num_nodes + np.maximum(u, v)
        return keys[u != v]

    def _positions(self, first: NDArray[np.int32]) -> NDArray[np.float64]:
        """Places on the cumulative weights, inside or outside the class of ``first``."""
        uniform = self.generator.random(len(first))
        total = self.cumulative[-1]
        if self.classes is None:
            return uniform * total
        own = self.classes[first]
        start, end = self.class_start[own], self.class_end[own]
        # A class that holds everything has no outside.
        inside = (self.generator.random(len(first)) < self.homophily) | (end - start >= total)
        outside = uniform * (total - (end - start))
        outside += (end - start) * (outside >= start)
        return np.where(inside, start + uniform * (end - start), outside)
