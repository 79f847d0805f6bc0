"""Bytes a whole forward pass needs, counted by purpose: frozen models beside PyG's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from bitgnn._library import library_info, load_for_dry_runs
from bitgnn.bits import BitAdjacency
from bitgnn.inference.bound_program import Inputs
from bitgnn.inference.frozen_model import FrozenModel, Graph
from bitgnn.inference.graph import PreparedGraph
from bitgnn.inference.rehearsal import CallMemory, rehearse
from bitgnn.measure.memory import peak_allocation
from bitgnn.ops.buffers import no_buffer_cache
from bitgnn.ops.route import DeviceDescription

FLOAT_BYTES = 4
INDEX_BYTES = 8


@dataclass(frozen=True)
class MemoryUse:
    """Bytes by purpose.

    Attributes:
        weights: parameters and folded statistics.
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
        ValueError: the model calls code of the user's own, whose memory is not known, or does not
            take ``x`` in this form, or there is no such device.
    """
    if any(step.kind == "call" for step in model.program.steps):
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
        peak, _ = forward_peak(lambda: model(x, adjacency), x.device)
        activations = max((call.activations for call in calls), default=0)
        workspace = max(0, peak - activations)
    weights = sum(buffer.nbytes for buffer in model.buffers())
    return MemoryUse(weights, x.nbytes, _graph_bytes(adjacency), activations, workspace)


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


def forward_peak(forward: Callable[[], Any], device: torch.device) -> tuple[int, int]:
    """Most bytes asked for at once beyond what existed before, and what their blocks had more.

    Args:
        forward: has run before, so that caches and layouts are there.
        device: where it runs.
    """
    if device.type == "cuda":
        return _cuda_peak(forward, device)
    # Results that the library keeps for reuse would not be seen.
    with no_buffer_cache():
        return peak_allocation(forward), 0


def _cuda_peak(forward: Callable[[], Any], device: torch.device) -> tuple[int, int]:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_stats(device)
    result = forward()
    torch.cuda.synchronize(device)
    after = torch.cuda.memory_stats(device)
    del result
    asked, handed_out = (
        after[f"{name}.all.peak"] - before[f"{name}.all.current"]
        for name in ("requested_bytes", "allocated_bytes")
    )
    return asked, handed_out - asked
