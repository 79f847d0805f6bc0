"""memory_report(): what a forward needs of memory, counted from shapes and measured beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.inference.frozen_model import FrozenModel, Graph
from bitgnn.inference.graph import GraphLayout
from bitgnn.inference.memory import MemoryUse, forward_peak, frozen_memory
from bitgnn.measure.memory import stored_bytes
from bitgnn.measure.report import format_bytes

FORMS = ("floats", "packed")


@dataclass(frozen=True)
class MeasuredMemory:
    """Bytes by purpose as tensors and the allocator tell them.

    Attributes:
        weights: storages of parameters and buffers.
        features: storages of the features.
        adjacency: storages of the graph, and what the model has cached of it.
        forward: what the allocator was asked for at once during a warm forward, at most, beyond
            what existed before: activations and workspace together.
        rounding: what its blocks took more than that, which depends on what was free before.
    """

    weights: int
    features: int
    adjacency: int
    forward: int
    rounding: int = 0

    @property
    def peak(self) -> int:
        """All together, but for the rounding."""
        return self.weights + self.features + self.adjacency + self.forward


@dataclass(frozen=True)
class MemoryReport:
    """Memory of one forward; ``str()`` gives a table.

    Attributes:
        model: name of the model's class.
        device: where it ran.
        features: form of the features: ``"floats"``, ``"packed"`` or ``"pattern"``.
        num_nodes: nodes of the graph.
        predicted: as :func:`~bitgnn.inference.frozen_memory` counts; None for models that are not
            frozen, and for frozen ones that call code of the user's own.
        measured: by tensors and allocator.
    """

    model: str
    device: str
    features: str
    num_nodes: int
    predicted: MemoryUse | None
    measured: MeasuredMemory

    @property
    def difference(self) -> float | None:
        """By how many per cent the predicted peak lies above the measured one."""
        if self.predicted is None or self.measured.peak == 0:
            return None
        return 100.0 * (self.predicted.peak / self.measured.peak - 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {
            "model": self.model,
            "device": self.device,
            "features": self.features,
            "num_nodes": self.num_nodes,
            "predicted": None if self.predicted is None else self.predicted.to_dict(),
            "measured": asdict(self.measured) | {"peak": self.measured.peak},
            "difference_percent": self.difference,
        }

    def __str__(self) -> str:
        lines = [
            f"{self.model} on {self.device}, {self.num_nodes} nodes, features as {self.features}",
            f"{'':22}{'predicted':>14}{'measured':>14}{'difference':>12}",
        ]
        lines += [_line(name, mine, theirs) for name, mine, theirs in self._rows()]
        return "\n".join(lines)

    def _rows(self) -> list[tuple[str, int | None, int | None]]:
        """Name, predicted and measured bytes of each line."""
        use, found = self.predicted, self.measured
        stored = ("weights", "features", "adjacency")
        rows = [(name, getattr(use, name, None), getattr(found, name)) for name in stored]
        forward = None
        if use is not None:
            rows += [("activations", use.activations, None), ("workspace", use.workspace, None)]
            forward = use.activations + use.workspace
        rows.append(("forward, both of them", forward, found.forward))
        if found.rounding:
            rows.append(("allocator's rounding", None, found.rounding))
        return [*rows, ("peak", None if use is None else use.peak, found.peak)]


def memory_report(
    model: nn.Module,
    data: Any,
    *,
    edge_weight: Tensor | None = None,
    features: Literal["floats", "packed"] | None = None,
    layout: GraphLayout = "auto",
) -> MemoryReport:
    """Bytes that a forward needs: weights, features, adjacency, activations and workspace.

    A frozen model's are counted as well, see :func:`~bitgnn.inference.frozen_memory`: on a GPU from
    shapes alone, which tells what another graph or GPU would need. The forward runs twice: once so
    that caches and layouts are there, once measured. On a GPU its kernels' own code and the
    allocator's spare blocks are not counted.

    Args:
        model: a frozen model; or any other, such as the trained one or PyG's, for comparison.
        data: PyG's ``Data`` with ``x`` and ``edge_index`` (or ``adj_t``), or a pair of features
            and graph, in any form that :meth:`FrozenModel.prepare_graph` takes or gives; None in
            place of the graph for a model without one. On the model's device.
        edge_weight: ``[E]`` float weights beside an edge index.
        features: ``"floats"`` gives the features as they are, ``"packed"`` as
            :meth:`FrozenModel.pack_features` stores them; None takes what the model was frozen for.
        layout: of the graph of a frozen model, see :meth:`FrozenModel.prepare_graph`.

    Returns:
        The report.

    Raises:
        TypeError: ``model`` is not a module, or ``data`` holds no features.
        ValueError: there is no such form of features, the model cannot take it, or what the model
            itself refuses.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"memory_report: model must be a module, got {type(model).__name__}")
    if features not in (None, *FORMS):
        raise ValueError(
            f"memory_report: features must be None or one of {list(FORMS)}, got {features!r}"
        )
    x, graph = _parts(data)
    if isinstance(model, FrozenModel):
        return _of_frozen(model, x, graph, edge_weight, features, layout)
    if features == "packed" or isinstance(x, BitTensor | BitAdjacency):
        raise ValueError("memory_report: packed features need a frozen model")
    graph_arguments = [part for part in (graph, edge_weight) if part is not None]

    @torch.inference_mode()
    def forward() -> Any:
        return model(x, *graph_arguments)

    was_training = model.training
    model.eval()
    try:
        found = _measured(forward, model, x, graph_arguments, x.device)
    finally:
        model.train(was_training)
    return MemoryReport(type(model).__name__, str(x.device), "floats", x.shape[0], None, found)


def _parts(data: Any) -> tuple[Any, Any]:
    """Features and graph."""
    if isinstance(data, tuple | list) and len(data) == 2:
        x, graph = data
    else:
        x = getattr(data, "x", None)
        graph = getattr(data, "edge_index", None)
        graph = getattr(data, "adj_t", None) if graph is None else graph
    if not isinstance(x, Tensor | BitTensor | BitAdjacency):
        raise TypeError(
            "memory_report: data must be a Data with x, or a pair of features and graph, "
            f"got {type(data).__name__}"
        )
    return x, graph


def _of_frozen(
    model: FrozenModel,
    x: Any,
    graph: Any,
    edge_weight: Tensor | None,
    features: str | None,
    layout: GraphLayout,
) -> MemoryReport:
    is_packed = isinstance(x, BitTensor | BitAdjacency)
    if not is_packed and (features or model.features) == "packed":
        x = model.pack_features(x)
    elif features == "floats" and is_packed:
        raise ValueError("memory_report: features must be given as floats, got packed ones")
    adjacency: Graph | None = None
    if model.takes_graph:
        adjacency = graph
        if not isinstance(graph, Graph):
            adjacency = model.prepare_graph(graph, x.shape[0], edge_weight, layout)
    found = _measured(lambda: model(x, adjacency), model, x, adjacency, x.device)
    has_calls = any(step.kind == "call" for step in model.program.steps)
    predicted = None if has_calls else frozen_memory(model, x, adjacency)
    form = {Tensor: "floats", BitTensor: "packed"}.get(type(x), "pattern")
    return MemoryReport(type(model).__name__, str(x.device), form, x.shape[0], predicted, found)


def _measured(
    forward: Callable[[], Any], model: nn.Module, x: Any, graph: Any, device: torch.device
) -> MeasuredMemory:
    """Storages of what is kept, and the allocator's peak on top."""
    forward()
    peak, rounding = forward_peak(forward, device)
    weights = stored_bytes(list(model.parameters()), list(model.buffers()))
    everything = stored_bytes(model, x, graph)
    stored = stored_bytes(x)
    return MeasuredMemory(weights, stored, everything - weights - stored, peak, rounding)


def _line(name: str, predicted: int | None, measured: int | None) -> str:
    shown = ["" if count is None else format_bytes(count) for count in (predicted, measured)]
    line = f"{name:<22}{shown[0]:>14}{shown[1]:>14}"
    if not predicted or not measured:
        return line.rstrip()
    return f"{line}{100.0 * (predicted / measured - 1.0):>+11.1f}%"
