"""Training objectives: losses of labels, and of teacher scores with their smoothing; the metric."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import APPNP
from torch_geometric.utils import to_torch_csr_tensor

from bitgnn.distillation.calling import MATRIX, DistillError

LEAST = 1e-9
STEPS, SHARES = 10, (0.1, 0.5)
"""Of smoothing: steps, and the shares of the teacher's own probabilities that are tried."""
MARGIN = 2e-3
"""Accuracy on validation nodes by which smoothing must be better than none."""


def roc_auc(positive: Tensor, negative: Tensor) -> Tensor:
    """Area under the ROC curve, float64: the share of pairs in the right order, ties counting half.

    The scores are of the positive class's members, ``[P]``, and of the others, ``[Q]``, P, Q > 0.
    """
    ordered = negative.sort().values
    positive = positive.contiguous()
    below = torch.searchsorted(ordered, positive)
    below_or_equal = torch.searchsorted(ordered, positive, right=True)
    pairs = positive.numel() * negative.numel()
    return (below + below_or_equal).double().sum() / (2 * pairs)


class Objective(ABC):
    """Losses and score of one kind of label."""

    metric: str
    """Name of the score; higher is better."""
    scale = 100.0
    """From a score to points, in which gaps are told."""

    @abstractmethod
    def labels(self, scores: Tensor, y: Tensor) -> Tensor:
        """Loss of ``[n, C]`` scores against labels."""

    def wanted(self, scores: Tensor, sharpen: float) -> Tensor:
        """Targets from a teacher's scores."""
        del sharpen
        return scores.float()

    def teacher(self, scores: Tensor, wanted: Tensor) -> Tensor:
        """Loss against the teacher's targets; 0 where they are reached."""
        return self.labels(scores, wanted)

    @abstractmethod
    def score(self, scores: Tensor, y: Tensor) -> Tensor:
        """The metric, a float64 scalar."""

    def successes(self, scores: Tensor, y: Tensor) -> Tensor | None:
        """Contribution of each row to the metric; None if the metric is no mean over rows."""
        del scores, y
        return None

    def form(self, y: Tensor, rows: int) -> Tensor:
        """Labels in the shape and type that the losses take."""
        return y.view(rows, -1).to(torch.get_default_dtype())

    def check(self, y: Tensor, outputs: int, name: str) -> None:
        """Refuse validation and test labels that cannot be scored."""
        del y, outputs, name

    def chance(self, y: Tensor) -> float:
        """Score of a model that knows nothing of its input."""
        del y
        return 0.0

    @abstractmethod
    def constant(self, y: Tensor) -> float:
        """Loss of labels that the best constant scores have."""


class Classes(Objective):
    """One class a row: cross-entropy, ``KL(teacher || softmax(scores))``, accuracy."""

    metric = "accuracy"

    def form(self, y: Tensor, rows: int) -> Tensor:
        """``[n]`` int64."""
        return y.view(rows).long()

    def check(self, y: Tensor, outputs: int, name: str) -> None:
        """Refuse rows without a class, and classes that the model has no score for."""
        low, high = (int(y.min()), int(y.max())) if y.numel() else (0, 0)
        if low < 0:
            raise DistillError(f"{name} holds rows without a label (y < 0)")
        if high >= outputs:
            raise DistillError(
                f"{name}: labels must be classes 0 to {outputs - 1}, one a column of the model's "
                f"scores, got {low} to {high}"
            )

    def labels(self, scores: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy."""
        return functional.cross_entropy(scores, y)

    def wanted(self, scores: Tensor, sharpen: float) -> Tensor:
        """Logarithms of ``p^s / sum(p^s)``."""
        return functional.log_softmax(sharpen * functional.log_softmax(scores.float(), -1), -1)

    def teacher(self, scores: Tensor, wanted: Tensor) -> Tensor:
        """Divergence, mean over rows."""
        log_shares = functional.log_softmax(scores, dim=-1)
        return functional.kl_div(log_shares, wanted, reduction="batchmean", log_target=True)

    def score(self, scores: Tensor, y: Tensor) -> Tensor:
        """Accuracy."""
        return self.successes(scores, y).mean()

    def successes(self, scores: Tensor, y: Tensor) -> Tensor:
        """1 where the largest score is that of the label."""
        return (scores.argmax(dim=-1) == y).double()

    def chance(self, y: Tensor) -> float:
        """Share of the commonest class."""
        return float(torch.bincount(y).max()) / y.numel()

    def constant(self, y: Tensor) -> float:
        """Entropy of the classes' shares."""
        shares = torch.bincount(y).double() / y.numel()
        return float(-torch.special.xlogy(shares, shares).sum())


class MultiLabel(Objective):
    """Any number of labels a row, NaN where one is unknown: binary cross-entropy and micro-F1."""

    metric = "micro-F1"

    def labels(self, scores: Tensor, y: Tensor) -> Tensor:
        """Binary cross-entropy of the known labels."""
        known = torch.isfinite(y)
        return functional.binary_cross_entropy_with_logits(
            scores, y.nan_to_num(), weight=known.to(scores.dtype), reduction="sum"
        ) / known.sum().clamp(min=1)

    def wanted(self, scores: Tensor, sharpen: float) -> Tensor:
        """Probabilities ``sigmoid(s z)``."""
        return torch.sigmoid(sharpen * scores.float())

    def teacher(self, scores: Tensor, wanted: Tensor) -> Tensor:
        """Divergence of Bernoulli variables, summed over labels, mean over rows."""
        shares = wanted.clamp(LEAST, 1 - LEAST)
        entropy = functional.binary_cross_entropy(shares, wanted)
        return functional.binary_cross_entropy_with_logits(scores, wanted) - entropy

    def score(self, scores: Tensor, y: Tensor) -> Tensor:
        """``2 TP / (2 TP + FP + FN)``."""
        known = torch.isfinite(y)
        said, true = (scores > 0) & known, (y > 0) & known
        hits = (said & true).sum().double()
        return 2 * hits / (said.sum() + true.sum()).clamp(min=1)

    def chance(self, y: Tensor) -> float:
        """F1 of predicting every label."""
        share = float((y > 0).sum()) / max(int(torch.isfinite(y).sum()), 1)
        return 2 * share / (1 + share)

    def constant(self, y: Tensor) -> float:
        """Entropy of each label's share, mean over known labels."""
        known = torch.isfinite(y).sum(0).double()
        shares = (y > 0).sum(0).double() / known.clamp(min=1)
        entropy = -torch.special.xlogy(shares, shares) - torch.special.xlogy(1 - shares, 1 - shares)
        return float((known * entropy).sum() / known.sum().clamp(min=1))


class Values(Objective):
    """Regression: squared error in units of the training labels' variance, and R squared."""

    metric = "R²"

    def __init__(self, y: Tensor) -> None:
        self.variance = float(y.double().var(correction=0))
        if self.variance <= 0:
            raise DistillError("y must vary among training labels, got one value everywhere")

    def check(self, y: Tensor, outputs: int, name: str) -> None:
        """Refuse values that are not finite."""
        if not bool(torch.isfinite(y).all()):
            raise DistillError(f"{name}: labels must be finite, found NaN or infinity")

    def labels(self, scores: Tensor, y: Tensor) -> Tensor:
        """Mean squared error over variance."""
        return functional.mse_loss(scores, y.view_as(scores)) / self.variance

    def score(self, scores: Tensor, y: Tensor) -> Tensor:
        """``1 - MSE / variance`` of the rows."""
        y = y.view_as(scores).double()
        error = (scores - y).square().mean()
        return 1 - error / y.var(correction=0).clamp(min=LEAST)

    def constant(self, y: Tensor) -> float:
        """Variance of the rows over that of the training labels."""
        return float(y.double().var(correction=0)) / self.variance


class Links(MultiLabel):
    """Link prediction: binary cross-entropy, area under the ROC curve."""

    metric = "AUC"
    CHANCE = 0.55

    def score(self, scores: Tensor, y: Tensor) -> Tensor:
        """Area under the ROC curve."""
        return roc_auc(scores[y > 0], scores[y <= 0])

    def chance(self, y: Tensor) -> float:
        """A little above one half."""
        del y
        return self.CHANCE


def objective_of(y: Tensor, outputs: int) -> Objective:
    """The objective that training labels imply, for scores of ``outputs`` columns.

    int64 ``[n]`` are classes; floats ``[n, C]`` of 0, 1 and NaN are labels of their own; other
    floats are values.
    """
    if y.dim() == MATRIX and y.size(1) == 1 and not y.is_floating_point():
        y = y.squeeze(1)
    if y.dtype == torch.bool or (not y.is_floating_point() and y.dim() == MATRIX):
        y = y.float()
    if not y.is_floating_point():
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= outputs:
            raise DistillError(
                f"y of training nodes must be classes 0 to {outputs - 1}, one a column of the "
                f"model's scores, got {low} to {high}"
            )
        if low == high:
            raise DistillError(f"y must hold two classes among training labels, got {low} alone")
        return Classes()
    if y.dim() == MATRIX and bool(((y == 0) | (y == 1) | y.isnan()).all()):
        if y.size(1) != outputs:
            raise DistillError(
                f"y must have a column for each of the model's {outputs} scores, got "
                f"{list(y.shape)}"
            )
        if not bool(torch.isfinite(y).any()):
            raise DistillError("y must have a known label among training rows, found NaN alone")
        return MultiLabel()
    if not bool(torch.isfinite(y).all()):
        raise DistillError("y must be finite among training labels, found NaN or infinity")
    if y.numel() != y.size(0) * outputs:
        raise DistillError(
            f"y must have {outputs} values a row, as the model's result has, got {list(y.shape)}"
        )
    return Values(y)


@dataclass(frozen=True)
class Smoothing:
    """Spread of a teacher's probabilities over the graph.

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
    """The best smoothing on validation nodes, or none if it gains little.

    ``logs`` and the result are ``[N, C]`` logarithms of the teacher's probabilities; ``edge_index``
    is ``[2, E]``, or a sparse adjacency whose rows are destinations.
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
