"""What a teacher asks of every node: its class probabilities, smoothed where that helps."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import APPNP
from torch_geometric.utils import to_torch_csr_tensor

from bitgnn.distillation.objectives import Classes

__all__ = ["Smoothing", "smoothed"]

STEPS = 10
SHARES = (0.1, 0.5)
MARGIN = 2e-3
"""Accuracy on validation nodes by which smoothing must be better than none."""
LEAST = 1e-9


@dataclass(frozen=True)
class Smoothing:
    """How a teacher's probabilities were spread over the graph.

    ``P <- (1 - share) A P + share P0``, ten times, with the normalised adjacency A of a GCN
    (Gasteiger et al. 2019); with ``labels`` the rows of training nodes in P0 are their labels
    (after Huang et al., "Combining Label Propagation and Simple Models", 2021).

    Attributes:
        share: of P0 kept in each step; 1 is none.
        labels: whether training labels take part.
        score: accuracy of the result on validation nodes.
    """

    share: float
    labels: bool
    score: float

    def __str__(self) -> str:
        if self.share == 1:
            return "none"
        return f"{STEPS} steps, share {self.share}{', with labels' if self.labels else ''}"


@torch.no_grad()
def smoothed(
    logs: Tensor, edge_index: Any, y: Tensor, train: Tensor, val: Tensor
) -> tuple[Tensor, Smoothing]:
    """The way of smoothing that is best on validation nodes; none where it gains little.

    Args:
        logs: ``[N, C]`` logarithms of the teacher's probabilities.
        edge_index: ``[2, E]``, or a sparse adjacency whose rows are destinations.
        y: ``[N]`` classes; those of training and validation nodes are read.
        train: indices of training nodes.
        val: indices of validation nodes.

    Returns:
        ``[N, C]`` logarithms, and what was done.
    """
    shares = logs.exp()
    with_labels = shares.clone()
    with_labels[train] = functional.one_hot(y[train], shares.size(1)).to(shares.dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
        graph = edge_index
        if isinstance(edge_index, Tensor) and edge_index.layout == torch.strided:
            # A sparse matrix needs no memory for the messages.
            size = (shares.size(0), shares.size(0))
            graph = to_torch_csr_tensor(edge_index.flip(0), size=size)
        found = [(shares, 1.0, False)]
        for share in SHARES:
            smooth = APPNP(STEPS, share)
            found.append((smooth(shares, graph), share, False))
            found.append((smooth(with_labels, graph), share, True))
    best: tuple[Tensor, Smoothing] | None = None
    for result, share, labels in found:
        score = float(Classes().score(result[val], y[val]))
        margin = 0.0 if best is None or best[1].share < 1 else MARGIN
        if best is None or score > best[1].score + margin:
            best = result, Smoothing(share, labels, score)
    assert best is not None
    result = best[0] / best[0].sum(dim=1, keepdim=True).clamp(min=LEAST)
    return result.clamp(min=LEAST).log(), best[1]
