"""Synthetic graphs for node classification, of any size or of a real graph's; always named so."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bitgnn.data.random_pattern import DegreeLaw, expected_degrees, random_pattern

if TYPE_CHECKING:
    from torch_geometric.data import Data

# How far class means lie apart, in standard deviations of the noise; 1.5 leaves features alone
# well short of perfect, so that the graph matters.
SIGNAL = 1.5
# Part of the pairs inside classes that a scaled-down graph may fill.
MAX_FILL = 0.2
EXPONENT = 2.5
HOMOPHILY = 0.6
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class GraphSize:
    """Size and statistics that a synthetic graph imitates.

    Attributes:
        num_nodes: nodes.
        num_edges: edges, both directions counted.
        num_features: features of a node.
        num_classes: classes.
        exponent: of the power law of degrees.
        max_degree: largest expected degree.
        homophily: share of edges inside classes, about that of the real graph.
        train: share of training nodes.
        val: share of validation nodes.
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
        """``scale`` times the nodes and edges.

        Edges shrink further where the smaller classes could not hold their share of them.
        """
        num_nodes = max(round(self.num_nodes * scale), 2 * self.num_classes)
        room = num_nodes * (num_nodes / self.num_classes - 1) * MAX_FILL / self.homophily
        num_edges = int(min(self.num_edges * scale, room)) // 2 * 2
        max_degree = max(round(self.max_degree * min(scale, 1.0)), -(-num_edges // num_nodes))
        return replace(self, num_nodes=num_nodes, num_edges=num_edges, max_degree=max_degree)


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

    Classes are drawn alike; features are a class's mean plus noise, see :func:`class_features`;
    edges follow the degree law and stay inside classes with the given homophily, see
    :func:`~bitgnn.data.random_pattern.random_pattern`. The same arguments give the same graph.

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
        scale: factor of a named size's nodes and edges.
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
        size = _named(num_nodes, scale)
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
    return _make(size, degree, signal, seed, title)


def _named(name: str, scale: float) -> GraphSize:
    if name not in NAMED_SIZES:
        raise ValueError(f"synthetic: size must be one of {list(NAMED_SIZES)}, got {name!r}")
    if not scale > 0:
        raise ValueError(f"synthetic: scale must be above 0, got {scale}")
    return NAMED_SIZES[name] if scale == 1.0 else NAMED_SIZES[name].scaled(scale)


def _make(size: GraphSize, degree: DegreeLaw, signal: float, seed: int, title: str) -> Data:
    from torch_geometric.data import Data

    for name in ("num_nodes", "num_features", "num_classes"):
        if getattr(size, name) < 1:
            raise ValueError(f"synthetic: {name} must be at least 1, got {getattr(size, name)}")
    if not math.isfinite(signal):
        raise ValueError(f"synthetic: signal must be finite, got {signal}")
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, size.num_classes, size.num_nodes)
    degrees = expected_degrees(
        size.num_nodes,
        size.num_edges / size.num_nodes,
        degree,
        exponent=size.exponent,
        max_degree=size.max_degree,
        generator=generator,
    )
    rowptr, indices = random_pattern(
        degrees, size.num_edges, labels=labels, homophily=size.homophily, generator=generator
    )
    edge_index = torch.empty((2, size.num_edges), dtype=torch.int64)
    edge_index[0] = indices
    edge_index[1] = torch.repeat_interleave(torch.arange(size.num_nodes), rowptr.diff())
    y = torch.from_numpy(labels)
    train, val, test = _split(size, generator)
    return Data(
        x=class_features(y, size.num_features, signal=signal, generator=generator),
        edge_index=edge_index,
        y=y,
        train_mask=train,
        val_mask=val,
        test_mask=test,
        name=f"{title} ({size.num_nodes} nodes, {size.num_edges} edges, {degree}, seed {seed})",
        synthetic=True,
    )


def _split(size: GraphSize, generator: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    drawn = torch.from_numpy(generator.random(size.num_nodes))
    train, val = drawn < size.train, (drawn >= size.train) & (drawn < size.train + size.val)
    return train, val, ~(train | val)


def class_features(
    y: Tensor,
    num_features: int,
    *,
    signal: float = SIGNAL,
    generator: np.random.Generator,
) -> Tensor:
    r"""Made-up features :math:`x_i = \mu_{y_i} + \epsilon_i`, noise and means normal.

    Args:
        y: ``[N]`` labels from 0; a node with a negative label gets noise alone.
        num_features: features of a node.
        signal: length of the classes' means, in standard deviations of the noise.
        generator: source of random numbers.

    Returns:
        ``[N, num_features]`` float32.
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
