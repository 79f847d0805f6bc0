"""Bytes that a forward needs, by purpose: counted from shapes, and measured beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from bitgnn._library import library_info, load_for_dry_runs
from bitgnn.bits import BitAdjacency, BitTensor, Int8Tensor
from bitgnn.inference.bound_program import Features, Inputs, Packed
from bitgnn.inference.frozen_model import FrozenModel, Graph
from bitgnn.inference.graph import GraphLayout, PreparedGraph
from bitgnn.inference.rehearsal import CallMemory, rehearse
from bitgnn.inference.sparse_features import require_dense
from bitgnn.measure.memory import cuda_peak_request, peak_allocation, stored_bytes
from bitgnn.measure.report import format_bytes
from bitgnn.ops.buffers import no_buffer_cache
from bitgnn.ops.route import DeviceDescription

FLOAT_BYTES = 4
INDEX_BYTES = 8
FORMS = ("floats", "packed")


@dataclass(frozen=True)
class MemoryUse:
    """Bytes by purpose.

    Attributes:
        weights: parameters and folded statistics, and copies that tell of writes to them.
        features: node features as stored.
        adjacency: the graph as stored, with its normalisation and the layouts beside it.
        activations: intermediate results that calls hand to each other; a layer's input lives
            until its output is there. The features are not counted again.
        workspace: what calls take beside those while most is in use: scratch memory of kernels,
            and results that never leave a call.
    """

    weights: int
    features: int
    adjacency: int
    activations: int
    workspace: int = 0

    @property
    def peak(self) -> int:
        """All five together."""
        return sum(asdict(self).values())

    def to_dict(self) -> dict[str, int]:
        """The numbers and their sum, for JSON."""
        return {**asdict(self), "peak": self.peak}


@dataclass(frozen=True)
class MeasuredMemory:
    """Bytes by purpose as tensors and the allocator tell them.

    Attributes:
        weights: storages of parameters and buffers, and copies that tell of writes to them.
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
        features: form of the features: ``"floats"``, ``"packed"``, ``"8-bit rows"`` or
            ``"pattern"``.
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
        if self.predicted is None:
            return None
        return _percent(self.predicted.peak, self.measured.peak)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {
            **asdict(self),
            "predicted": None if self.predicted is None else self.predicted.to_dict(),
            "measured": asdict(self.measured) | {"peak": self.measured.peak},
            "difference_percent": self.difference,
        }

    def __str__(self) -> str:
        use, found = self.predicted, self.measured
        rows: list[tuple[str, int | None, int | None]] = [
            (name, getattr(use, name, None), getattr(found, name))
            for name in ("weights", "features", "adjacency")
        ]
        forward = None
        if use is not None:
            rows += [("activations", use.activations, None), ("workspace", use.workspace, None)]
            forward = use.activations + use.workspace
        rows.append(("forward, both of them", forward, found.forward))
        if found.rounding:
            rows.append(("allocator's rounding", None, found.rounding))
        rows.append(("peak", None if use is None else use.peak, found.peak))
        lines = [
            f"{self.model} on {self.device}, {self.num_nodes} nodes, features as {self.features}",
            f"{'':22}{'predicted':>14}{'measured':>14}{'difference':>12}",
        ]
        for name, *counts in rows:
            predicted, measured = ("" if n is None else format_bytes(n) for n in counts)
            difference = _percent(*counts) if all(counts) else None
            shown = "" if difference is None else f"{difference:>+11.1f}%"
            lines.append(f"{name:<22}{predicted:>14}{measured:>14}{shown}".rstrip())
        return "\n".join(lines)


def _percent(predicted: int | None, measured: int | None) -> float | None:
    """By how many per cent one number lies above the other."""
    if predicted is None or not measured:
        return None
    return 100.0 * (predicted / measured - 1.0)


def frozen_memory(
    model: FrozenModel,
    x: Inputs,
    adjacency: Graph | None,
    device: str | DeviceDescription | None = None,
) -> MemoryUse:
    """Memory of ``model(x, adjacency)``.

    A GPU's is counted from shapes, by a dry run of each call's launchers
    (:func:`bitgnn.ops.route.route`). CPU kernels have no dry run, nor has a GPU that runs the
    reference operators: there the forward runs twice, and the allocator tells the second time what
    it was asked for. On a CPU torch's profiler listens to it, so not within a profile of one's own.

    Args:
        model: the frozen model.
        x: features or images in the form they are given to the model.
        adjacency: prepared graph, or None for a model without one. What a forward finds out about
            its rows and keeps with it is found and counted here, too.
        device: a GPU to count for, whatever is there: a name of :data:`bitgnn.ops.route.DEVICES`
            or a description. Calls and layouts stay those of the model and graph as they lie. None
            for where ``x`` lies.

    Raises:
        RuntimeError: ``device`` is given, and there is no library of CUDA kernels to ask.
        TypeError: ``x`` is a sparse tensor.
        ValueError: the model calls code of the user's own, whose memory is not known, or does not
            take ``x`` in this form, or there is no such device.
    """
    require_dense("frozen_memory", x)
    if _has_calls(model):
        raise ValueError("frozen_memory: the memory of a call of the user's own is not known")
    kernels: str | torch.device | DeviceDescription | None = device
    if device is not None:
        problem = load_for_dry_runs()
        if problem:
            raise RuntimeError(f"frozen_memory: the memory of a GPU cannot be counted: {problem}")
    elif x.device.type == "cuda" and library_info().cuda_library is not None:
        kernels = x.device
    rehearse(model, x, adjacency, None)  # finds what a first forward finds
    calls = rehearse(model, x, adjacency, kernels)
    largest = max(calls, key=lambda call: call.total, default=CallMemory(0, 0))
    activations, workspace = largest.activations, largest.workspace
    if kernels is None:
        model(x, adjacency)
        peak, _ = _forward_peak(lambda: model(x, adjacency), x.device)
        activations = max((call.activations for call in calls), default=0)
        workspace = max(0, peak - activations)
    return MemoryUse(
        _weight_bytes(model), x.nbytes, _graph_bytes(adjacency), activations, workspace
    )


def _weight_bytes(model: nn.Module) -> int:
    copies = model.copies if isinstance(model, FrozenModel) else []
    return stored_bytes(list(model.parameters()), list(model.buffers()), copies)


def _has_calls(model: FrozenModel) -> bool:
    """Whether the model calls code of the user's own."""
    return any(step.kind == "call" for step in model.program.steps)


def _graph_bytes(adjacency: Graph | None) -> int:
    """Bytes of a graph's tensors, each once, and of the layouts derived from them."""
    if adjacency is None:
        return 0
    parts = adjacency.adjacencies if isinstance(adjacency, PreparedGraph) else (adjacency,)
    held = {id(tensor): tensor.nbytes for tensor in adjacency.tensors if tensor is not None}
    derived = [part.derived_nbytes for part in parts if isinstance(part, BitAdjacency)]
    return sum(held.values()) + sum(derived)


def pyg_memory(model: nn.Module, x: Tensor, num_edges: int, form: str) -> MemoryUse:
    """Memory of PyG's float GCN on the same graph with its normalisation cached.

    Args:
        model: module whose layers are PyG ``GCNConv``, in order.
        x: ``[N, F]`` features.
        num_edges: edges of the normalised graph, self loops included.
        form: ``"edge_index"`` (gathers a message for each edge) or ``"csr"`` (fused product).

    Raises:
        ValueError: ``form`` is neither of the two.
    """
    num_nodes = x.size(0)
    if form == "edge_index":
        adjacency = num_edges * (2 * INDEX_BYTES + FLOAT_BYTES)
        messages = num_edges
    elif form == "csr":
        adjacency = (num_nodes + 1 + num_edges) * INDEX_BYTES + num_edges * FLOAT_BYTES
        messages = 0
    else:
        raise ValueError(f"pyg_memory: form must be 'edge_index' or 'csr', got {form!r}")
    before = peak = 0
    for conv in model.modules():
        if isinstance(conv, GCNConv):
            after = num_nodes * conv.out_channels * FLOAT_BYTES
            gathered = messages * conv.out_channels * FLOAT_BYTES
            # The layer's input, its product, the messages and its output.
            peak = max(peak, before + after + gathered + after)
            before = after
    weights = sum(parameter.nbytes for parameter in model.parameters())
    return MemoryUse(weights, x.nbytes, adjacency, peak)


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
    if isinstance(model, FrozenModel):
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
    measured, predicted = _measured(model, x, given), None
    if isinstance(model, FrozenModel) and not _has_calls(model):
        predicted = frozen_memory(model, x, graph)
    kinds = ((BitTensor, "packed"), (Int8Tensor, "8-bit rows"), (Tensor, "floats"))
    form = next((text for kind, text in kinds if isinstance(x, kind)), "pattern")
    name, device = type(model).__name__, str(x.device)
    return MemoryReport(name, device, form, x.shape[0], predicted, measured)


@torch.no_grad()
def _measured(model: nn.Module, x: Any, graph: list[Any]) -> MeasuredMemory:
    """Storages of what is kept, and the allocator's peak of a second forward on top."""
    was_training = model.training
    model.eval()
    try:
        model(x, *graph)
        peak, rounding = _forward_peak(lambda: model(x, *graph), x.device)
        everything = stored_bytes(model, x, graph)
    finally:
        model.train(was_training)
    weights, stored = _weight_bytes(model), stored_bytes(x)
    return MeasuredMemory(weights, stored, everything - weights - stored, peak, rounding)


def _forward_peak(forward: Callable[[], Any], device: torch.device) -> tuple[int, int]:
    """Most bytes asked for at once beyond what existed before, and what their blocks had more.

    The forward has run before, so that caches and layouts are there.
    """
    if device.type == "cuda":
        return cuda_peak_request(forward, device)
    with no_buffer_cache():  # results that the library keeps for reuse would not be seen
        return peak_allocation(forward), 0
