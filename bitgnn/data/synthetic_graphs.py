"""Synthetic graphs for node classification, of any size or of a real graph's; always named so."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

DegreeLaw = Literal["power_law", "uniform"]

# How far class means lie apart, in standard deviations of the noise; 1.5 leaves features alone
# well short of perfect, so that the graph matters.
SIGNAL = 1.5
# Part of the pairs inside classes that a scaled-down graph may fill.
MAX_FILL = 0.2
EXPONENT = 2.5
HOMOPHILY = 0.6
ROWS_AT_ONCE = 1 << 16
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


@dataclass(frozen=True)
class GraphSize:
    """Size and statistics that a synthetic graph imitates.

    Edges count in both directions; ``exponent`` is that of the power law of degrees, ``max_degree``
    the largest expected one; ``homophily``, ``train`` and ``val`` are shares.
    """

    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    exponent: float
    max_degree: int
    homophily: float
    train: float
    val: float

    def scaled(self, scale: float) -> GraphSize:
        """``scale`` times the nodes and edges, at most half of all pairs.

        Where the smaller classes could not hold their share of the edges, ``homophily`` falls.
        """
        num_nodes = max(round(self.num_nodes * scale), 2 * self.num_classes)
        num_edges = int(min(self.num_edges * scale, num_nodes * (num_nodes - 1) / 2)) // 2 * 2
        room = num_nodes * (num_nodes / self.num_classes - 1) * MAX_FILL
        homophily = min(self.homophily, room / max(num_edges, 1))
        max_degree = max(round(self.max_degree * min(scale, 1.0)), -(-num_edges // num_nodes))
        sizes: dict[str, Any] = {"num_nodes": num_nodes, "num_edges": num_edges}
        return replace(self, **sizes, max_degree=max_degree, homophily=homophily)


NAMED_SIZES = {
    "reddit": GraphSize(232_965, 114_615_892, 602, 41, EXPONENT, 21_657, 0.76, 0.66, 0.10),
    "flickr": GraphSize(89_250, 899_756, 500, 7, EXPONENT, 5_425, 0.32, 0.50, 0.25),
    "arxiv": GraphSize(169_343, 2_315_598, 128, 40, EXPONENT, 13_161, 0.65, 0.54, 0.18),
    "products": GraphSize(2_449_029, 123_718_280, 100, 47, EXPONENT, 17_481, 0.81, 0.08, 0.02),
}
"""Sizes of Reddit, Flickr, ogbn-arxiv (both directions) and ogbn-products."""


def synthetic(
    num_nodes: int | str,
    num_edges: int | None = None,
    num_features: int | None = None,
    num_classes: int | None = None,
    *,
    degree: DegreeLaw = "power_law",
    exponent: float | None = None,
    max_degree: int | None = None,
    homophily: float | None = None,
    signal: float = SIGNAL,
    scale: float = 1.0,
    seed: int = 0,
) -> Data:
    """A random graph whose features and edges tell something about its classes.

    Classes are drawn alike; features are a class's mean plus noise, both normal; edges follow the
    degree law (Chung and Lu 2002) and stay inside classes with the given homophily. The same
    arguments give the same graph.

    Args:
        num_nodes: nodes, or the name of a size: ``"reddit"``, ``"flickr"``, ``"arxiv"``,
            ``"products"``, which sets all that is left None.
        num_edges: edges, both directions counted (the graph is undirected, without loops).
        num_features: features of a node.
        num_classes: classes.
        degree: ``"power_law"`` or ``"uniform"`` (all nodes alike).
        exponent: of the power law; 2.5 if not named.
        max_degree: largest expected degree; ``num_nodes - 1`` if not named.
        homophily: share of edges inside classes, about; 0.6 if not named.
        signal: distance of class means in standard deviations of the noise.
        scale: factor of a named size's nodes and edges; homophily falls where smaller classes
            cannot hold as many edges.
        seed: of everything random.

    Returns:
        ``Data`` with ``x`` float32 ``[N, F]``, ``edge_index`` int64 ``[2, E]`` ordered by
        destination, ``y`` int64 ``[N]``, three masks, ``name`` starting with ``"synthetic"`` and
        ``synthetic = True``.

    Raises:
        ValueError: an unknown name, a size that is missing or below 1, ``scale`` without a name
            or not above 0, or edges that cannot be placed.
    """
    given = {"num_edges": num_edges, "num_features": num_features, "num_classes": num_classes}
    if isinstance(num_nodes, str):
        if num_nodes not in NAMED_SIZES:
            raise ValueError(
                f"synthetic: size must be one of {list(NAMED_SIZES)}, got {num_nodes!r}"
            )
        if not scale > 0:
            raise ValueError(f"synthetic: scale must be above 0, got {scale}")
        size = NAMED_SIZES[num_nodes] if scale == 1.0 else NAMED_SIZES[num_nodes].scaled(scale)
        title = f"synthetic {num_nodes}" + (f" x {scale:g}" if scale != 1.0 else "")
    else:
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise ValueError(f"synthetic: {missing} must be given where the size has no name")
        if scale != 1.0:
            raise ValueError(f"synthetic: scale needs a named size, got {scale}")
        size = GraphSize(num_nodes, 0, 0, 0, EXPONENT, max(num_nodes - 1, 0), HOMOPHILY, 0.5, 0.25)
        title = "synthetic"
    changes: dict[str, Any] = {
        **given,
        "exponent": exponent,
        "max_degree": max_degree,
        "homophily": homophily,
    }
    size = replace(size, **{name: v for name, v in changes.items() if v is not None})
    for name in ("num_nodes", "num_features", "num_classes"):
        if getattr(size, name) < 1:
            raise ValueError(f"synthetic: {name} must be at least 1, got {getattr(size, name)}")
    if not math.isfinite(signal):
        raise ValueError(f"synthetic: signal must be finite, got {signal}")
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, size.num_classes, size.num_nodes)
    degrees = expected_degrees(size, degree, generator)
    rowptr, indices = _random_pattern(degrees, size.num_edges, labels, size.homophily, generator)
    edge_index = torch.empty((2, size.num_edges), dtype=torch.int64)
    edge_index[0] = indices
    edge_index[1] = torch.repeat_interleave(torch.arange(size.num_nodes), rowptr.diff())
    y = torch.from_numpy(labels)
    drawn = torch.from_numpy(generator.random(size.num_nodes))
    train, rest = drawn < size.train, drawn >= size.train + size.val
    return Data(
        x=class_features(y, size.num_features, generator, signal),
        edge_index=edge_index,
        y=y,
        train_mask=train,
        val_mask=~(train | rest),
        test_mask=rest,
        name=f"{title} ({size.num_nodes} nodes, {size.num_edges} edges, {degree}, seed {seed})",
        synthetic=True,
    )


def class_features(
    y: Tensor, num_features: int, generator: np.random.Generator, signal: float = SIGNAL
) -> Tensor:
    r"""Made-up features :math:`x_i = \mu_{y_i} + \epsilon_i`, noise and means normal.

    A node with a negative label gets only noise; means have length ``signal``.
    """
    num_classes = max(int(y.max()) + 1, 1) if y.numel() else 1
    means = generator.standard_normal((num_classes, num_features), dtype=np.float32)
    means *= signal / np.sqrt(num_features)
    # The last row, which index -1 means, is for nodes without a label.
    means = np.concatenate([means, np.zeros((1, num_features), dtype=np.float32)])
    labels = y.clamp(min=-1).numpy()
    x = np.empty((len(labels), num_features), dtype=np.float32)
    for start in range(0, len(labels), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        generator.standard_normal(dtype=np.float32, out=x[rows])
        x[rows] += means[labels[rows]]
    return torch.from_numpy(x)


def expected_degrees(
    size: GraphSize, degree: DegreeLaw, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Expected degree of each node, at most ``max_degree``.

    The density of a power law is proportional to ``degree ** -exponent`` above a least degree
    (Pareto); exponents of real networks are 2 to 3.
    """
    if degree not in ("power_law", "uniform"):
        raise ValueError(f"degree must be 'power_law' or 'uniform', got {degree!r}")
    if not size.exponent > 1.0:
        raise ValueError(f"exponent must be above 1, got {size.exponent}")
    mean = size.num_edges / size.num_nodes
    if mean > size.max_degree:
        raise ValueError(
            f"max_degree must be at least the mean degree {mean:.1f}, got {size.max_degree}"
        )
    if degree == "uniform" or mean == 0:
        return np.full(size.num_nodes, float(mean))
    degrees: NDArray[np.float64] = generator.pareto(size.exponent - 1.0, size.num_nodes) + 1.0
    for _ in range(CLIPPING_ROUNDS):
        degrees = np.minimum(degrees * (mean * size.num_nodes / degrees.sum()), size.max_degree)
    return degrees


def _random_pattern(
    degrees: NDArray[np.float64],
    num_edges: int,
    labels: NDArray[np.int64],
    homophily: float,
    generator: np.random.Generator,
) -> tuple[Tensor, Tensor]:
    """A symmetric pattern without loops and duplicates, and with exactly ``num_edges`` entries.

    Each pair is drawn with probability proportional to the product of its expected degrees
    (Chung and Lu 2002). A share ``homophily`` of the pairs joins nodes of one class and the rest
    joins different classes, about: pairs drawn twice are drawn anew, which takes from the nodes
    that are joined to most of their class already.

    Returns ``rowptr`` int64 ``[N + 1]`` and ``indices`` int32 ``[num_edges]``, ascending in a row.
    """
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
    keys = _distinct_pairs(drawer, num_nodes, num_edges // 2)
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


def _distinct_pairs(drawer: _PairDrawer, num_nodes: int, count: int) -> NDArray[np.int64]:
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
    extra = drawer.generator.choice(len(keys), len(keys) - count, replace=False, shuffle=False)
    return np.delete(keys, extra)


class _PairDrawer:
    """Draws pairs of nodes; works on nodes in the order of their classes."""

    def __init__(
        self,
        degrees: NDArray[np.float64],
        labels: NDArray[np.int64],
        homophily: float,
        generator: np.random.Generator,
    ) -> None:
        self.generator = generator
        self.homophily = homophily
        self.order = np.argsort(labels, kind="stable")
        self.classes = labels[self.order]
        self.weights = degrees[self.order]
        self.cumulative = np.concatenate([[0.0], np.cumsum(self.weights)])
        counts = np.bincount(labels)
        ends = np.cumsum(counts)
        self.class_start, self.class_end = self.cumulative[ends - counts], self.cumulative[ends]

    def draw(self, count: int) -> NDArray[np.int64]:
        """About ``count`` keys ``u * N + v``, ``u < v``; loops are left out."""
        num_nodes = len(self.order)
        counts = self.generator.multinomial(count, self.weights / self.cumulative[-1])
        first = np.repeat(np.arange(num_nodes, dtype=np.int32), counts)
        pieces = [self._keys(first[start : start + CHUNK]) for start in range(0, len(first), CHUNK)]
        return np.concatenate(pieces)

    def _keys(self, first: NDArray[np.int32]) -> NDArray[np.int64]:
        num_nodes = len(self.order)
        second = np.searchsorted(self.cumulative, self._positions(first), side="right") - 1
        # The end of the last class may be hit by rounding.
        np.clip(second, 0, num_nodes - 1, out=second)
        u, v = self.order[first], self.order[second]
        keys = np.minimum(u, v).astype(np.int64) * num_nodes + np.maximum(u, v)
        return keys[u != v]

    def _positions(self, first: NDArray[np.int32]) -> NDArray[np.float64]:
        """Places on the cumulative weights, inside or outside the class of ``first``."""
        uniform = self.generator.random(len(first))
        total = self.cumulative[-1]
        own = self.classes[first]
        start, end = self.class_start[own], self.class_end[own]
        # A class that holds everything has no outside.
        inside = (self.generator.random(len(first)) < self.homophily) | (end - start >= total)
        outside = uniform * (total - (end - start))
        outside += (end - start) * (outside >= start)
        return np.where(inside, start + uniform * (end - start), outside)
