"""What a training works on: tensors of one graph on one device, checked before any work."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_torch_csr_tensor

from bitgnn.data import DataError
from bitgnn.train.metrics import CountRight, Metric, RocAuc

__all__ = ["NodeTask", "check_data"]

MASKS = ("train_mask", "val_mask", "test_mask")


def check_data(data: Data, metric: Literal["accuracy", "roc_auc"], title: str = "data") -> None:
    """Refuse a graph that cannot be trained or validated on.

    Args:
        data: the graph.
        metric: score that is asked for.
        title: the data set's name, for messages.

    Raises:
        DataError: features, labels or masks are missing, empty or of a wrong kind, or a part has
            too few classes for the metric; the message names what and why.
    """
    missing = [name for name in ("x", "y", *MASKS) if getattr(data, name, None) is None]
    if missing:
        raise DataError(f"{title}: {', '.join(missing)} missing; training needs x, y and masks")
    nodes = data.x.size(0)
    if data.x.dim() != 2 or not data.x.is_floating_point():
        raise DataError(
            f"{title}: x must be a float matrix, got {data.x.dtype} {list(data.x.shape)}"
        )
    if not bool(torch.isfinite(data.x).all()):
        raise DataError(f"{title}: x must be finite, found NaN or infinity")
    if data.y.shape != (nodes,) or data.y.dtype != torch.int64:
        raise DataError(
            f"{title}: y must be int64 [{nodes}], got {data.y.dtype} {list(data.y.shape)}"
        )
    for name in MASKS:
        mask = data[name]
        if mask.shape != (nodes,) or mask.dtype != torch.bool:
            raise DataError(
                f"{title}: {name} must be bool [{nodes}], got {mask.dtype} {list(mask.shape)}"
            )
        if not bool(mask.any()):
            raise DataError(f"{title}: {name} is empty")
        if int(data.y[mask].min()) < 0:
            raise DataError(f"{title}: {name} holds nodes without a label (y < 0)")
    if metric == "roc_auc":
        if int(data.y.max()) != 1:
            raise DataError(f"{title}: roc_auc needs the classes 0 and 1, y has {data.y.max()}")
        for name in MASKS[1:]:
            if data.y[data[name]].unique().numel() < 2:
                raise DataError(f"{title}: {name} holds a single class, roc_auc needs both")


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
