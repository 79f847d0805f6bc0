"""Bytes a whole forward pass needs, counted from shapes: frozen models beside PyG's."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.inference.frozen_model import FrozenModel, Graph
from bitgnn.inference.graph import PreparedGraph
from bitgnn.inference.workspace import unheld_registers, workspace_bytes

__all__ = ["MemoryUse", "frozen_memory", "pyg_memory"]

FLOAT_BYTES = 4
"""Bytes of a float32, and of a word of 32 bits."""
INDEX_BYTES = 8
WORD_BITS = 32


@dataclass(frozen=True)
class MemoryUse:
    """Bytes by purpose.

    Attributes:
        weights: parameters and folded statistics.
        features: node features as stored.
        adjacency: the graph as stored, with its normalisation and the layouts beside it.
        activations: intermediate results alive at once, at most; a layer's input lives until its
            output is there. The features are not counted again.
        workspace: scratch memory of kernels while most is in use.
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
    model: FrozenModel, x: Tensor | BitTensor | BitAdjacency, adjacency: Graph | None
) -> MemoryUse:
    """Memory of ``model(x, adjacency)``.

    Args:
        model: the frozen model.
        x: features in the form they are given to the model.
        adjacency: prepared graph, or None for a model without one.

    Raises:
        ValueError: the model calls code of the user's own, whose memory is not known, or does not
            take ``x`` in this form.
    """
    num_nodes = x.shape[0]
    graphs = adjacency.adjacencies if isinstance(adjacency, PreparedGraph) else (adjacency,)
    activations = workspace = 0
    for group, alive in model.groups(x):
        registers = alive - unheld_registers(group, graphs, x.device)
        held = num_nodes * sum(_row_bytes(*model.registers[r]) for r in registers)
        scratch = workspace_bytes(group, model.registers, graphs, num_nodes, x.device)
        if held + scratch > activations + workspace:
            activations, workspace = held, scratch
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


def _row_bytes(form: str, size: int | None) -> int:
    """Bytes of one node's share of a register."""
    if form == "scale":
        return FLOAT_BYTES
    if form == "classes":
        return INDEX_BYTES
    if size is None:
        raise ValueError("frozen_memory: the memory of a call of the user's own is not known")
    return FLOAT_BYTES * (-(-size // WORD_BITS) if form == "bits" else size)


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
