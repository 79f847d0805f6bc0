"""What a training works on, checked before any work, and the scores of what it gives."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_torch_csr_tensor

from bitgnn.data import DataError

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


MASKS = ("train_mask", "val_mask", "test_mask")


def check_data(
    data: Data,
    metric: Literal["accuracy", "roc_auc"],
    title: str = "data",
    *,
    needed: Sequence[str] = MASKS,
    error: type[Exception] = DataError,
) -> None:
    """Refuse a graph that cannot be trained or validated on.

    Args:
        data: the graph.
        metric: score that is asked for.
        title: the data set's name, for messages.
        needed: masks that must be there; of the others, those that are there are checked.
        error: what is raised.

    Raises:
        DataError: features, labels or masks are missing, empty or of a wrong kind, or a part has
            too few classes for the metric; the message names what and why. Or ``error``.
    """
    missing = [n for n in ("x", "y", *needed) if getattr(data, n, None) is None]
    if missing:
        raise error(f"{title}: {', '.join(missing)} missing; x, y and masks are needed")
    x, y, nodes = data.x, data.y, data.x.size(0)
    if x.dim() != 2 or not x.is_floating_point() or nodes == 0:
        raise error(
            f"{title}: x must be a float matrix [N, F] with a node at least, "
            f"got {x.dtype} {list(x.shape)}"
        )
    if not bool(torch.isfinite(x).all()):
        raise error(f"{title}: x must be finite, found NaN or infinity")
    if y.shape != (nodes,) or y.dtype != torch.int64:
        raise error(f"{title}: y must be int64 [{nodes}], got {y.dtype} {list(y.shape)}")
    for name in MASKS:
        mask = getattr(data, name, None)
        if mask is None:
            continue
        if not isinstance(mask, Tensor) or mask.shape != (nodes,) or mask.dtype != torch.bool:
            got = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
            raise error(
                f"{title}: {name} must be bool [{nodes}], got {got}; of several splits choose one"
            )
        if not bool(mask.any()):
            if name in needed:
                raise error(f"{title}: {name} is empty")
        elif int(y[mask].min()) < 0:
            raise error(f"{title}: {name} holds nodes without a label (y < 0)")
    if metric == "roc_auc":
        for name in needed:
            if name != MASKS[0] and y[data[name]].unique().numel() < 2:
                raise error(f"{title}: {name} holds a single class, roc_auc needs both")
        if int(y.max()) != 1:
            raise error(f"{title}: roc_auc needs the classes 0 and 1, y has {y.max()}")


@dataclass(frozen=True)
class NodeTask:
    """One graph ready for training: everything on the device once, no masks to count again.

    Attributes:
        x: ``[N, F]`` features as the model takes them.
        edge_index: ``[2, E]``.
        y: ``[N]`` labels.
        train: indices of the training nodes.
        val: indices of the validation nodes.
        score: the metric.
        evaluation_graph: the graph as validation takes it: ``edge_index``, or a sparse matrix,
            whose products need no memory for the messages.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    train: Tensor
    val: Tensor
    score: Metric
    evaluation_graph: Tensor

    @classmethod
    def of(
        cls,
        data: Data,
        x: Tensor,
        metric: Literal["accuracy", "roc_auc"] = "accuracy",
        device: torch.device | str = "cpu",
        sparse: bool = False,
    ) -> NodeTask:
        """Move a checked graph to a device.

        Args:
            data: the graph.
            x: its features as the model takes them.
            metric: the score.
            device: where training happens.
            sparse: validate on a sparse matrix, as training on samples does: the whole graph may
                be far larger than what fits a step.
        """
        y = data.y.to(device)
        masks = [data[name].to(device) for name in MASKS]
        score: Metric = RocAuc(y, masks) if metric == "roc_auc" else CountRight(y, masks)
        train, val = (mask.nonzero().flatten() for mask in masks[:2])
        edge_index = data.edge_index.to(device)
        graph = edge_index
        if sparse:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
                # Rows are destinations.
                graph = to_torch_csr_tensor(edge_index.flip(0), size=(x.size(0), x.size(0)))
        return cls(x.to(device), edge_index, y, train, val, score, graph)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.x.device
