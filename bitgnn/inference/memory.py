"""Bytes that a forward needs: of the tensors that are kept, and the allocator's peak on top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bitgnn.bits import BitTensor, Int8Tensor
from bitgnn.inference.bound_program import Features, Packed
from bitgnn.inference.frozen_model import FrozenModel, Graph
from bitgnn.inference.graph import GraphLayout
from bitgnn.inference.sparse_features import require_dense
from bitgnn.measure.memory import cuda_peak_request, peak_allocation, stored_bytes
from bitgnn.measure.report import format_bytes
from bitgnn.ops.buffers import no_buffer_cache

FORMS = ("floats", "packed")


@dataclass(frozen=True)
class MeasuredMemory:
    """Bytes by purpose as tensors and the allocator tell them.

    Attributes:
        weights: storages of parameters and buffers, and copies that tell of writes to them.
        features: storages of the features.
        adjacency: storages of the graph with the layouts derived from it, and what the model has
            cached of it.
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

    def to_dict(self) -> dict[str, int]:
        """The numbers and their sum, for JSON."""
        return {**asdict(self), "peak": self.peak}


@dataclass(frozen=True)
class MemoryReport:
    """Memory of one forward; ``str()`` gives a table.

    Attributes:
        model: name of the model's class.
        device: where it ran.
        features: form of the features: ``"floats"``, ``"packed"``, ``"8-bit rows"`` or
            ``"pattern"``.
        num_nodes: nodes of the graph.
        measured: by tensors and allocator.
    """

    model: str
    device: str
    features: str
    num_nodes: int
    measured: MeasuredMemory

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {**asdict(self), "measured": self.measured.to_dict()}

    def __str__(self) -> str:
        found = self.measured
        rows = [(name, getattr(found, name)) for name in ("weights", "features", "adjacency")]
        rows.append(("forward", found.forward))
        if found.rounding:
            rows.append(("allocator's rounding", found.rounding))
        rows.append(("peak", found.peak))
        lines = [
            f"{self.model} on {self.device}, {self.num_nodes} nodes, features as {self.features}",
            *(f"{name:<22}{format_bytes(count):>14}" for name, count in rows),
        ]
        return "\n".join(lines)


def memory_report(
    model: nn.Module,
    data: Any,
    *,
    edge_weight: Tensor | None = None,
    features: Literal["floats", "packed"] | None = None,
    layout: GraphLayout = "auto",
) -> MemoryReport:
    """Bytes that a forward needs: weights, features, adjacency, and the forward's own at its peak.

    The forward runs twice: once so that caches and layouts are there, once measured. On a CPU
    torch's profiler listens to the allocator, so not within a profile of one's own. On a GPU its
    kernels' own code and the allocator's spare blocks are not counted.

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
        TypeError: ``model`` is not a module, or ``data`` holds no features or sparse ones.
        ValueError: there is no such form of features, the model cannot take it, or what the model
            itself refuses.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"memory_report: model must be a module, got {type(model).__name__}")
    if features not in (None, *FORMS):
        raise ValueError(
            f"memory_report: features must be None or one of {list(FORMS)}, got {features!r}"
        )
    if isinstance(data, tuple | list) and len(data) == 2:
        x, graph = data
    else:
        x = getattr(data, "x", None)
        graph = getattr(data, "edge_index", None)
        graph = getattr(data, "adj_t", None) if graph is None else graph
    if not isinstance(x, Features):
        raise TypeError(
            "memory_report: data must be a Data with x, or a pair of features and graph, "
            f"got {type(data).__name__}"
        )
    require_dense("memory_report", x)
    is_packed = isinstance(x, Packed)
    if isinstance(model, FrozenModel) and model.is_program:
        if not is_packed and (features or model.features) == "packed":
            x = model.pack_features(x)
        elif features == "floats" and is_packed:
            raise ValueError("memory_report: features must be given as floats, got packed ones")
        if not model.takes_graph:
            graph = None
        elif not isinstance(graph, Graph):
            graph = model.prepare_graph(graph, x.shape[0], edge_weight, layout)
        given = [graph]
    elif features == "packed" or is_packed:
        raise ValueError("memory_report: packed features need a frozen model")
    else:
        given = [part for part in (graph, edge_weight) if part is not None]
    kinds = ((BitTensor, "packed"), (Int8Tensor, "8-bit rows"), (Tensor, "floats"))
    form = next((text for kind, text in kinds if isinstance(x, kind)), "pattern")
    name, device = type(model).__name__, str(x.device)
    return MemoryReport(name, device, form, x.shape[0], measured_memory(model, x, *given))


@torch.no_grad()
def measured_memory(model: nn.Module, x: Any, *graph: Any) -> MeasuredMemory:
    """Memory of ``model(x, *graph)``, called twice in evaluation mode: the second time counts.

    Args:
        model: any module, frozen or not.
        x: features or images in the form in which they are given to the model.
        graph: the graph in the form in which the model takes it, and what stands beside it.
    """
    was_training = model.training
    model.eval()
    try:
        model(x, *graph)
        peak, rounding = _forward_peak(lambda: model(x, *graph), x.device)
        everything = stored_bytes(model, x, graph)
        adjacency = stored_bytes(graph)
    finally:
        model.train(was_training)
    weights, features = list(model.parameters()) + list(model.buffers()), stored_bytes(x)
    if isinstance(model, FrozenModel) and model.is_program:  # caches are the prepared graph's
        kept = stored_bytes(weights, model.copies)
        return MeasuredMemory(kept, features, adjacency, peak, rounding)
    kept = stored_bytes(weights)
    return MeasuredMemory(kept, features, everything - kept - features, peak, rounding)


def _forward_peak(forward: Callable[[], Any], device: torch.device) -> tuple[int, int]:
    """Most bytes asked for at once beyond what existed before, and what their blocks had more.

    The forward has run before, so that caches and layouts are there.
    """
    if device.type == "cuda":
        return cuda_peak_request(forward, device)
    with no_buffer_cache():  # results that the library keeps for reuse would not be seen
        return peak_allocation(forward), 0
