"""Workload: the model and the data that a tuner works on, checked before any work."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from torch import Tensor, nn

from bitgnn.convert import Plan, freeze
from bitgnn.convert.swap.graphs import own_letters
from bitgnn.measure.report import cpu_model
from bitgnn.tune.metrics import CountRight, Metric, MetricName, RocAuc, check_data


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
            metric: the score.
            device: where to measure; None for the model's own device.

        Raises:
            TypeError: ``model`` is not a module.
            ValueError: there is nothing to tune, no validation mask, or something in the data is
                missing or wrong; the message names it.
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
        if _graph(data) is None:
            raise ValueError("tune: data: edge_index missing")
        if getattr(data, "val_mask", None) is None:
            raise ValueError(
                "tune: data: val_mask missing, on which accuracy is measured; split the nodes "
                "first, for example with torch_geometric.transforms.RandomNodeSplit"
            )
        check_data(data, metric)
        tensors = [*model.parameters(), *model.buffers()]
        home = tensors[0].device if tensors else torch.device("cpu")
        place = home if device is None else torch.device(device)
        if any(tensor.device != place for tensor in tensors):
            model = copy.deepcopy(model).to(place)
        test, weight = (getattr(data, name, None) for name in ("test_mask", "edge_weight"))
        workload = cls(
            model,
            data.x.to(place),
            _graph(data).to(place),
            data.y.to(place),
            data.val_mask.to(place),
            None if test is None else test.to(place),
            edge_weight=None if weight is None else weight.to(place),
            metric=metric,
        )
        return workload._checked()

    @property
    def device(self) -> torch.device:
        """Where model and data are."""
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

    def metric_of(self, *masks: Tensor) -> Metric:
        """The score of logits on some parts of the nodes."""
        make = RocAuc if self.metric == "roc_auc" else CountRight
        return make(self.y, masks)

    def score(self, logits: Tensor) -> float:
        """Score of ``[N, C]`` logits on the validation nodes."""
        return float(self.metric_of(self.val_mask)(logits)[0])

    def _checked(self) -> Workload:
        """Itself, if the model can be frozen and fits the data, with the weights it takes."""
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


def _graph(data: Any) -> Any:
    edges = getattr(data, "edge_index", None)
    return getattr(data, "adj_t", None) if edges is None else edges
