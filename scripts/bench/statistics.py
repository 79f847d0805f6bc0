"""What a graph looks like: sizes, degrees, homophily, split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bitgnn.data.splits import MASKS

__all__ = ["GraphStatistics", "graph_statistics"]

# Edges looked at together; bounds the memory on large graphs.
EDGES_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class GraphStatistics:
    """Statistics of a graph for node classification.

    Attributes:
        name: what the graph is called; says so where something in it is made up.
        num_nodes: nodes.
        num_edges: columns of the edge index, so that an undirected edge counts twice.
        num_self_loops: edges from a node to itself.
        num_isolated: nodes without an edge to another node.
        num_features: features of a node.
        density: share of features that are not 0.
        num_classes: classes.
        num_unlabelled: nodes without a label.
        degrees: least, median, mean and largest in-degree.
        homophily: share of edges whose two nodes have the same label, among those with labels at
            both ends; NaN without any.
        split: number of training, validation and test nodes; None for a missing mask.
    """

    name: str
    num_nodes: int
    num_edges: int
    num_self_loops: int
    num_isolated: int
    num_features: int
    density: float
    num_classes: int
    num_unlabelled: int
    degrees: tuple[int, int, float, int]
    homophily: float
    split: tuple[int | None, int | None, int | None]

    def rows(self) -> list[tuple[str, str]]:
        """Pairs of a label and a printed value."""
        least, median, mean, largest = self.degrees
        split = ["none" if part is None else f"{part:,}" for part in self.split]
        return [
            ("graph", self.name),
            ("nodes", f"{self.num_nodes:,} ({self.num_isolated:,} isolated)"),
            ("edges", f"{self.num_edges:,} ({self.num_self_loops:,} self loops)"),
            ("in-degree", f"min {least}, median {median}, mean {mean:.1f}, max {largest:,}"),
            ("features", f"{self.num_features:,} ({self.density:.1%} not 0)"),
            ("classes", f"{self.num_classes} ({self.num_unlabelled:,} nodes without label)"),
            ("edge homophily", f"{self.homophily:.3f}"),
            ("train / val / test", " / ".join(split)),
        ]

    def __str__(self) -> str:
        width = max(len(label) for label, _ in self.rows())
        return "\n".join(f"{label:<{width}}  {value}" for label, value in self.rows())


def graph_statistics(data: Any) -> GraphStatistics:
    """Statistics of a graph as :func:`bitgnn.data.load` returns it.

    Args:
        data: ``Data`` with ``x`` ``[N, F]``, ``edge_index`` ``[2, E]`` and ``y`` ``[N]``.

    Returns:
        The statistics; all numbers are defined for graphs without nodes or edges too.
    """
    num_nodes = data.x.size(0)
    degrees = torch.zeros(num_nodes, dtype=torch.int64)
    touched = torch.zeros(num_nodes, dtype=torch.bool)
    loops = same = known = 0
    for edges in data.edge_index.split(EDGES_AT_ONCE, dim=1):
        source, target = edges
        degrees += torch.bincount(target, minlength=num_nodes)
        is_loop = source == target
        loops += int(is_loop.sum())
        touched[source[~is_loop]] = True
        touched[target[~is_loop]] = True
        first, second = data.y[source], data.y[target]
        labelled = (first >= 0) & (second >= 0)
        known += int(labelled.sum())
        same += int(((first == second) & labelled).sum())
    return GraphStatistics(
        name=str(getattr(data, "name", None) or "graph"),
        num_nodes=num_nodes,
        num_edges=data.edge_index.size(1),
        num_self_loops=loops,
        num_isolated=int((~touched).sum()),
        num_features=data.x.size(1),
        density=int(torch.count_nonzero(data.x)) / max(data.x.numel(), 1),
        num_classes=int(data.y.max()) + 1 if num_nodes else 0,
        num_unlabelled=int((data.y < 0).sum()),
        degrees=_summary(degrees),
        homophily=same / known if known else float("nan"),
        split=tuple(_count(getattr(data, key, None)) for key in MASKS),  # type: ignore[arg-type]
    )


def _summary(degrees: Tensor) -> tuple[int, int, float, int]:
    if degrees.numel() == 0:
        return 0, 0, 0.0, 0
    mean = degrees.double().mean().item()
    return int(degrees.min()), int(degrees.median()), mean, int(degrees.max())


def _count(mask: Tensor | None) -> int | None:
    return None if mask is None else int(mask.sum())
