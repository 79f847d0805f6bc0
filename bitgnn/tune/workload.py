"""Workload: the model and data that a tuner works on, checked before any work, and scores."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from bitgnn.convert import Plan, freeze
from bitgnn.convert.swap.graphs import own_letters
from bitgnn.distillation.objectives import Classes, roc_auc
from bitgnn.measure.report import cpu_model

MetricName = Literal["accuracy", "roc_auc"]
"""Score of the validation nodes: share of right classes, or area under the ROC curve."""
MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(frozen=True)
class Score:
    """Scores of a model as shares or areas under the curve.

    Attributes:
        validation: of the validation nodes, by which plans are chosen.
        test: of the test nodes, to be reported only; None without a test mask.
    """

    validation: float
    test: float | None = None


@dataclass(frozen=True, eq=False)
class Workload:
    """A model with the graph it runs on, everything on one device.

    Made by :meth:`of`, which checks what is given.

    Attributes:
        model: the trained model; never changed.
        x: ``[N, F]`` float features.
        edge_index: the graph: an edge index ``[2, E]`` or a transposed sparse adjacency.
        y: int64 ``[N]`` labels.
        val_mask: bool ``[N]``, nodes that scores are of.
        test_mask: bool ``[N]``; None where there are none.
        edge_weight: ``[E]`` float weights; None without, or where the model takes none.
        metric: the score.
        widen: multiple of the hidden channels of the model that was given.
    """

    model: nn.Module
    x: Tensor
    edge_index: Any
    y: Tensor
    val_mask: Tensor
    test_mask: Tensor | None = None
    edge_weight: Tensor | None = None
    metric: MetricName = "accuracy"
    widen: float = 1.0

    @classmethod
    def of(
        cls,
        model: nn.Module,
        data: Any,
        *,
        metric: MetricName = "accuracy",
        device: torch.device | str | None = None,
    ) -> Workload:
        """Check a model and its data and bring both to one device.

        Args:
            model: a trained model with layers whose letters can be chosen; a copy is moved where
                it lives on another device.
            data: PyG ``Data`` with ``x``, ``edge_index`` (or ``adj_t``), ``y`` and ``val_mask``;
                ``edge_weight`` goes to models that take it.
            metric: ``"accuracy"`` or ``"roc_auc"``.
            device: where to measure; None for the model's own device.

        Raises:
            TypeError: ``model`` is not a module.
            ValueError: there is nothing to tune, or something in the data is missing or wrong.
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"tune: model must be a torch.nn.Module, got {type(model).__name__}")
        if metric not in get_args(MetricName):
            raise ValueError(
                f"tune: metric must be one of {list(get_args(MetricName))}, got {metric!r}"
            )
        if not own_letters(model):
            raise ValueError(
                f"tune: nothing to tune, {type(model).__name__} has no GCNConv, SAGEConv, "
                "GraphConv or bitgnn.nn.Linear"
            )
        graph = getattr(data, "edge_index", None)
        graph = getattr(data, "adj_t", None) if graph is None else graph
        if graph is None:
            raise ValueError("tune: data: edge_index missing")
        _check_data(data, metric)
        tensors = [*model.parameters(), *model.buffers()]
        home = tensors[0].device if tensors else torch.device("cpu")
        place = home if device is None else torch.device(device)
        if any(tensor.device != place for tensor in tensors):
            model = copy.deepcopy(model).to(place)
        test, weight = (getattr(data, name, None) for name in ("test_mask", "edge_weight"))
        x, y, val = (data[name].to(place) for name in ("x", "y", "val_mask"))
        test, weight = (None if value is None else value.to(place) for value in (test, weight))
        return cls(model, x, graph.to(place), y, val, test, weight, metric)._checked()

    @property
    def device(self) -> torch.device:
        """Device of model and data."""
        return self.x.device

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.x.size(0)

    @property
    def description(self) -> dict[str, Any]:
        """Names and sizes in plain values."""
        graph = self.edge_index
        is_index = isinstance(graph, Tensor) and graph.layout == torch.strided
        edges = graph.size(1) if is_index else getattr(graph, "nnz", graph._nnz)()
        is_cuda = self.device.type == "cuda"
        return {
            "model": type(self.model).__name__,
            "nodes": self.num_nodes,
            "edges": int(edges),
            "features": self.x.size(1),
            "metric": self.metric,
            "device": torch.cuda.get_device_name(self.device) if is_cuda else cpu_model(),
            "kind": self.device.type,
        }

    def score(self, logits: Tensor) -> float:
        """Score of ``[N, C]`` logits on the validation nodes."""
        return self._score(logits, self.val_mask)

    def scores(self, logits: Tensor) -> Score:
        """Scores of ``[N, C]`` logits on the validation and the test nodes."""
        has_test = self.test_mask is not None and bool(self.test_mask.any())
        test = self._score(logits, self.test_mask) if has_test else None  # type: ignore[arg-type]
        return Score(self.score(logits), test)

    def _score(self, logits: Tensor, mask: Tensor) -> float:
        """Score on the nodes of a mask; the area under the curve of a single class is NaN."""
        logits, y = logits[mask], self.y[mask]
        if self.metric == "accuracy":
            return float(Classes().score(logits, y))
        margin = logits[:, 1] - logits[:, 0]
        return float(roc_auc(margin[y == 1], margin[y == 0]))

    def _checked(self) -> Workload:
        """The workload, after checking that the model can be frozen and fits the data."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="freeze: parts", category=UserWarning)
            frozen = freeze(self.model, Plan(own_letters(self.model)), check=False)
        if frozen.in_channels != self.x.size(1):
            raise ValueError(
                f"tune: data.x must have {frozen.in_channels} features as the model takes them, "
                f"got {self.x.size(1)}"
            )
        classes, largest = frozen.out_channels, int(self.y.max())
        if classes is not None and largest >= classes:
            raise ValueError(
                f"tune: data.y must be below the {classes} classes of the model, got {largest}"
            )
        if self.metric == "roc_auc" and classes not in (None, 2):
            raise ValueError(f"tune: roc_auc needs a model of 2 classes, got {classes}")
        return self if frozen.takes_edge_weight else replace(self, edge_weight=None)


def _check_data(data: Any, metric: MetricName) -> None:
    """Refuse features, labels and masks on which scores cannot be measured."""
    if getattr(data, "val_mask", None) is None:
        raise ValueError(
            "tune: data: val_mask missing, on which accuracy is measured; split the nodes "
            "first, for example with torch_geometric.transforms.RandomNodeSplit"
        )
    missing = [name for name in ("x", "y") if getattr(data, name, None) is None]
    if missing:
        raise ValueError(f"tune: data: {', '.join(missing)} missing; x, y and masks are needed")
    x, y, nodes = data.x, data.y, data.x.size(0)
    if x.dim() != 2 or not x.is_floating_point() or nodes == 0:
        raise ValueError(
            "tune: data: x must be a float matrix [N, F] with a node at least, "
            f"got {x.dtype} {list(x.shape)}"
        )
    if not bool(torch.isfinite(x).all()):
        raise ValueError("tune: data: x must be finite, found NaN or infinity")
    if y.shape != (nodes,) or y.dtype != torch.int64:
        raise ValueError(f"tune: data: y must be int64 [{nodes}], got {y.dtype} {list(y.shape)}")
    for name in MASKS:
        mask = getattr(data, name, None)
        if mask is None:
            continue
        if not isinstance(mask, Tensor) or mask.shape != (nodes,) or mask.dtype != torch.bool:
            got = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
            raise ValueError(
                f"tune: data: {name} must be bool [{nodes}], got {got}; of several splits "
                "choose one"
            )
        if name == "val_mask" and not bool(mask.any()):
            raise ValueError("tune: data: val_mask is empty")
        if bool((y[mask] < 0).any()):
            raise ValueError(f"tune: data: {name} holds nodes without a label (y < 0)")
    if metric == "roc_auc":
        if y[data.val_mask].unique().numel() < 2:
            raise ValueError("tune: data: val_mask holds a single class, roc_auc needs both")
        if int(y.max()) != 1:
            raise ValueError(f"tune: data: roc_auc needs the classes 0 and 1, y has {y.max()}")
