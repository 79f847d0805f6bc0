"""Scores of logits on the three parts of a split, computed without waiting for the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["CountRight", "Metric", "RocAuc", "roc_auc"]

Metric = Callable[[Tensor], Tensor]
"""Maps ``[N, C]`` logits to ``[3]`` float64 scores of training, validation and test nodes."""


class CountRight:
    """Accuracy: share of nodes whose largest logit is their label's.

    Args:
        y: ``[N]`` labels.
        masks: bool ``[N]`` of each part.
    """

    def __init__(self, y: Tensor, masks: Sequence[Tensor]) -> None:
        self.y = y
        # Counts are exact in float32 below 2^24 nodes, so equal accuracies compare as equal.
        self.members = torch.stack([mask.float() for mask in masks])
        self.sizes = torch.stack([mask.sum() for mask in masks]).double()

    def __call__(self, logits: Tensor) -> Tensor:
        """Scores of the parts."""
        right = (logits.argmax(dim=-1) == self.y).float()
        return (self.members @ right).double() / self.sizes


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


class RocAuc:
    """Area under the ROC curve of two classes, ranked by the difference of their logits.

    A part without one of the classes scores NaN.

    Args:
        y: ``[N]`` labels, 0 or 1.
        masks: bool ``[N]`` of each part.
    """

    def __init__(self, y: Tensor, masks: Sequence[Tensor]) -> None:
        self.parts = [
            ((mask & (y == 1)).nonzero().flatten(), (mask & (y == 0)).nonzero().flatten())
            for mask in masks
        ]

    def __call__(self, logits: Tensor) -> Tensor:
        """Scores of the parts."""
        margin = logits[:, 1] - logits[:, 0]
        return torch.stack([roc_auc(margin[ones], margin[zeros]) for ones, zeros in self.parts])
