"""Scores of class scores on parts of a graph's nodes, and checks of the data they are taken on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from bitgnn.distillation.objectives import roc_auc

__all__ = ["CountRight", "Metric", "MetricName", "RocAuc", "check_data"]

MetricName = Literal["accuracy", "roc_auc"]
"""Score of the validation nodes: share of right classes, or area under the ROC curve."""
Metric = Callable[[Tensor], Tensor]
"""Maps ``[N, C]`` logits to ``[P]`` float64 scores of P parts of the nodes."""


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


MASKS = ("train_mask", "val_mask", "test_mask")


def check_data(data: Data, metric: MetricName) -> None:
    """Refuse a graph on which a tuner cannot measure accuracy.

    Args:
        data: the graph.
        metric: score that is asked for.

    Raises:
        ValueError: features, labels or ``val_mask`` are missing, empty or of a wrong kind, another
            mask is of a wrong kind, or validation has too few classes for the metric; the message
            names what and why.
    """
    title = "tune: data"
    missing = [n for n in ("x", "y", "val_mask") if getattr(data, n, None) is None]
    if missing:
        raise ValueError(f"{title}: {', '.join(missing)} missing; x, y and masks are needed")
    x, y, nodes = data.x, data.y, data.x.size(0)
    if x.dim() != 2 or not x.is_floating_point() or nodes == 0:
        raise ValueError(
            f"{title}: x must be a float matrix [N, F] with a node at least, "
            f"got {x.dtype} {list(x.shape)}"
        )
    if not bool(torch.isfinite(x).all()):
        raise ValueError(f"{title}: x must be finite, found NaN or infinity")
    if y.shape != (nodes,) or y.dtype != torch.int64:
        raise ValueError(f"{title}: y must be int64 [{nodes}], got {y.dtype} {list(y.shape)}")
    for name in MASKS:
        mask = getattr(data, name, None)
        if mask is None:
            continue
        if not isinstance(mask, Tensor) or mask.shape != (nodes,) or mask.dtype != torch.bool:
            got = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
            raise ValueError(
                f"{title}: {name} must be bool [{nodes}], got {got}; of several splits choose one"
            )
        if not bool(mask.any()):
            if name == "val_mask":
                raise ValueError(f"{title}: {name} is empty")
        elif int(y[mask].min()) < 0:
            raise ValueError(f"{title}: {name} holds nodes without a label (y < 0)")
    if metric == "roc_auc":
        if y[data.val_mask].unique().numel() < 2:
            raise ValueError(f"{title}: val_mask holds a single class, roc_auc needs both")
        if int(y.max()) != 1:
            raise ValueError(f"{title}: roc_auc needs the classes 0 and 1, y has {y.max()}")
