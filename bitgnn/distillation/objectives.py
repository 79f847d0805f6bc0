"""What is learnt: loss of labels, loss of a teacher's scores, and the measure of success."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.distillation.errors import DistillError

__all__ = ["Classes", "Links", "MultiLabel", "Objective", "Values", "objective_of", "roc_auc"]

LEAST = 1e-9
BINARY = 2


def roc_auc(positive: Tensor, negative: Tensor) -> Tensor:
    """Area under the ROC curve: the share of pairs in the right order, ties counting half.

    Args:
        positive: ``[P]`` scores of the positive class's members, P above 0.
        negative: ``[Q]`` scores of the others, Q above 0.

    Returns:
        float64 scalar.
    """
    ordered = negative.sort().values
    positive = positive.contiguous()
    below = torch.searchsorted(ordered, positive)
    below_or_equal = torch.searchsorted(ordered, positive, right=True)
    pairs = positive.numel() * negative.numel()
    return (below + below_or_equal).double().sum() / (2 * pairs)


class Objective(ABC):
    """Losses and score of one kind of label.

    Attributes:
        metric: name of the score; higher is better.
        scale: from a score to points, in which gaps are told.
    """

    metric: str
    scale = 100.0

    @abstractmethod
    def labels(self, scores: Tensor, y: Tensor) -> Tensor:
        """Loss of ``[n, C]`` scores against labels."""

    @abstractmethod
    def wanted(self, scores: Tensor, sharpen: float) -> Tensor:
        """What a teacher with these scores asks for."""

    @abstractmethod
    def teacher(self, scores: Tensor, wanted: Tensor) -> Tensor:
        """Loss against what the teacher asks for; 0 is the least where it is reached."""

    @abstractmethod
    def score(self, scores: Tensor, y: Tensor) -> Tensor:
        """The metric, a float64 scalar."""

    @abstractmethod
    def successes(self, scores: Tensor, y: Tensor) -> Tensor | None:
        """What each row adds to the metric; None where it is no mean over rows."""

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

    def successes(self, scores: Tensor, y: Tensor) -> None:
        """None: F1 is no mean over rows."""

    def chance(self, y: Tensor) -> float:
        """F1 of saying yes everywhere."""
        share = float((y > 0).sum()) / max(int(torch.isfinite(y).sum()), 1)
        return 2 * share / (1 + share)

    def constant(self, y: Tensor) -> float:
        """Entropy of each label's share, mean over known labels."""
        known = torch.isfinite(y).sum(0).double()
        shares = (y > 0).sum(0).double() / known.clamp(min=1)
        entropy = -torch.special.xlogy(shares, shares) - torch.special.xlogy(1 - shares, 1 - shares)
        return float((known * entropy).sum() / known.sum().clamp(min=1))


class Values(Objective):
    """Regression: squared error in units of the training labels' variance, and R squared.

    Args:
        y: training labels.
    """

    metric = "R²"

    def __init__(self, y: Tensor) -> None:
        self.variance = float(y.double().var(correction=0))
        if self.variance <= 0:
            raise DistillError("y must vary among training labels, got one value everywhere")

    def labels(self, scores: Tensor, y: Tensor) -> Tensor:
        """Mean squared error over variance."""
        return functional.mse_loss(scores, y.view_as(scores)) / self.variance

    def wanted(self, scores: Tensor, sharpen: float) -> Tensor:
        """The teacher's values."""
        del sharpen
        return scores.float()

    def teacher(self, scores: Tensor, wanted: Tensor) -> Tensor:
        """Mean squared error over variance."""
        return functional.mse_loss(scores, wanted) / self.variance

    def score(self, scores: Tensor, y: Tensor) -> Tensor:
        """``1 - MSE / variance`` of the rows."""
        y = y.view_as(scores).double()
        error = (scores - y).square().mean()
        return 1 - error / y.var(correction=0).clamp(min=LEAST)

    def constant(self, y: Tensor) -> float:
        """Variance of the rows over that of the training labels."""
        return float(y.double().var(correction=0)) / self.variance

    def successes(self, scores: Tensor, y: Tensor) -> None:
        """None: R squared is no mean over rows."""


class Links(MultiLabel):
    """Whether pairs of nodes are linked: binary cross-entropy, area under the ROC curve."""

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
    """The objective that labels imply.

    Args:
        y: training labels: int64 ``[n]`` are classes; floats ``[n, C]`` of 0, 1 and NaN are labels
            of their own; other floats are values.
        outputs: columns of the model's scores.

    Raises:
        DistillError: there is a single class, classes that the model has no score for, or labels
            of no such kind.
    """
    if y.dim() == BINARY and y.size(1) == 1 and not y.is_floating_point():
        y = y.squeeze(1)
    if y.dtype == torch.bool or (not y.is_floating_point() and y.dim() == BINARY):
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
    if y.dim() == BINARY and bool(((y == 0) | (y == 1) | y.isnan()).all()):
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
