"""Scores of a classification from its counts: accuracy and Matthews correlation."""

from __future__ import annotations

from torch import Tensor

__all__ = ["score"]


def score(counts: Tensor, metric: str) -> float:
    """The score of a table of counts.

    Args:
        counts: ``[C, C]`` sentences by label (row) and answer (column).
        metric: ``"accuracy"``, the share of right answers; or ``"matthews"``, Gorodkin's
            correlation of labels and answers, 0 where one of them is always the same.

    Raises:
        ValueError: ``metric`` is neither of the two.
    """
    table = counts.double().cpu()
    total, right = float(table.sum()), float(table.diagonal().sum())
    if metric == "accuracy":
        return right / total if total else 0.0
    if metric != "matthews":
        raise ValueError(f"score: metric must be 'accuracy' or 'matthews', got {metric!r}")
    labels, answers = table.sum(1), table.sum(0)
    covariance = right * total - float(labels @ answers)
    spread = (total**2 - float(labels @ labels)) * (total**2 - float(answers @ answers))
    return covariance / spread**0.5 if spread > 0 else 0.0
