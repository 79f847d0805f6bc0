"""How the graph a user has becomes the adjacencies a frozen model aggregates with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_sparse, to_edge_index

from bitgnn.bits import BitAdjacency, pytrees
from bitgnn.nn.aggregation import gcn_adjacency, neighbour_adjacency

FLOWS = ("source_to_target", "target_to_source")
KINDS = ("gcn", "neighbours")
REDUCTIONS = ("add", "mean")
PARTS = ("edge_index", "edge_weight")


@dataclass(frozen=True)
class FloatAdjacency:
    """A float-valued sparse matrix in CSR: rows are destinations.

    Attributes:
        rowptr: int64 ``[N + 1]``.
        indices: int32 ``[E]``, source of each edge.
        values: float32 ``[E]``.
        num_cols: N.
    """

    rowptr: Tensor
    indices: Tensor
    values: Tensor
    num_cols: int

    @property
    def nbytes(self) -> int:
        """Bytes of the three tensors."""
        return self.rowptr.nbytes + self.indices.nbytes + self.values.nbytes

    @property
    def nnz(self) -> int:
        """Number of edges."""
        return self.indices.size(0)

    @property
    def shape(self) -> tuple[int, int]:
        """``(N, N)``."""
        return self.rowptr.size(0) - 1, self.num_cols

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.indices.device

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """What it consists of: row pointer, indices and values."""
        return self.rowptr, self.indices, self.values

    def to(self, device: torch.device | str) -> FloatAdjacency:
        """The same matrix on another device."""
        return FloatAdjacency(
            self.rowptr.to(device), self.indices.to(device), self.values.to(device), self.num_cols
        )


Adjacency = BitAdjacency | FloatAdjacency


@dataclass(frozen=True)
class GraphSpec:
    """What a layer makes of the graph: its options as plain values.

    Attributes:
        kind: ``"gcn"`` (self loops and symmetric normalisation) or ``"neighbours"``.
        reduction: ``"add"`` or ``"mean"``.
        add_self_loops: for ``"gcn"``.
        improved: for ``"gcn"``: added loops weigh 2.
        normalize: for ``"gcn"``: whether to normalise.
        flow: PyG's direction of messages.
        weighted: whether the layer is given edge weights.
        uses_sparse_values: whether values of a ``SparseTensor`` count; SAGEConv leaves them out.
        keeps_weights: float weights (adjacency letter F) instead of a pattern with factors.
        uses_columns: keep the pattern's column factor.
    """

    kind: Literal["gcn", "neighbours"] = "gcn"
    reduction: Literal["add", "mean"] = "add"
    add_self_loops: bool = True
    improved: bool = False
    normalize: bool = True
    flow: str = "source_to_target"
    weighted: bool = True
    uses_sparse_values: bool = True
    keeps_weights: bool = False
    uses_columns: bool = True

    @property
    def holds(self) -> str:
        """``"values"`` or ``"pattern"``: what steps find in the adjacency."""
        return "values" if self.keeps_weights else "pattern"

    @classmethod
    def from_description(cls, description: Any) -> GraphSpec:
        """Read what ``dataclasses.asdict`` gave.

        Raises:
            ValueError: an entry is missing, left over or has no such value.
        """
        names = [entry.name for entry in fields(cls)]
        if not isinstance(description, Mapping) or sorted(description) != sorted(names):
            raise ValueError(f"a graph must have the entries {names}, got {description}")
        spec = cls(**description)
        flags = (getattr(spec, entry.name) for entry in fields(cls) if entry.type == "bool")
        if (
            spec.kind not in KINDS
            or spec.reduction not in REDUCTIONS
            or spec.flow not in FLOWS
            or not all(type(flag) is bool for flag in flags)
        ):
            raise ValueError(f"a graph has an unknown option: {description}")
        return spec

    def build(self, edge_index: Any, num_nodes: int, edge_weight: Tensor | None) -> Adjacency:
        """The adjacency for a graph, as the layer makes it.

        Raises:
            ValueError: the graph does not fit ``num_nodes``.
        """
        weight = edge_weight if self.weighted else None
        if not self.uses_sparse_values and isinstance(edge_index, SparseTensor):
            edge_index = edge_index.set_value(None, layout=None)
        if self.keeps_weights:
            return self._build_floats(edge_index, num_nodes, weight)
        made = self._build_pattern(edge_index, num_nodes, weight)
        if self.uses_columns or made.col_scale is None:
            return made
        return BitAdjacency(made.rowptr, made.indices, made.num_cols, made.row_scale)

    def _build_pattern(
        self, edge_index: Any, num_nodes: int, weight: Tensor | None
    ) -> BitAdjacency:
        if self.kind == "gcn":
            return gcn_adjacency(
                edge_index,
                num_nodes,
                weight,
                normalize=self.normalize,
                add_self_loops=self.add_self_loops,
                improved=self.improved,
                flow=self.flow,
                reduction=self.reduction,
            )
        return neighbour_adjacency(
            edge_index, num_nodes, num_nodes, weight, reduction=self.reduction, flow=self.flow
        )

    def _build_floats(
        self, edge_index: Any, num_nodes: int, weight: Tensor | None
    ) -> FloatAdjacency:
        if self.kind == "gcn" and self.normalize:
            normalized = gcn_norm(
                edge_index, weight, num_nodes, self.improved, self.add_self_loops, self.flow
            )
            is_pair = isinstance(normalized, tuple)
            edge_index, weight = normalized if is_pair else (normalized, None)
        edges, weight = _weighted_edges(edge_index, weight, self.flow)
        sources, destinations = edges
        if weight is None:
            weight = torch.ones(sources.size(0), device=edges.device)
        counts = torch.bincount(destinations, minlength=num_nodes)
        if self.reduction == "mean":
            weight = weight / counts.clamp(min=1)[destinations]
        # A stable sort keeps the order in which PyG adds the messages of a node up.
        order = torch.argsort(destinations, stable=True)
        rowptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=edges.device)
        torch.cumsum(counts, 0, out=rowptr[1:])
        values = weight[order].float().contiguous()
        return FloatAdjacency(rowptr, sources[order].int(), values, num_nodes)


@dataclass(frozen=True)
class PreparedGraph:
    """Adjacencies of a model whose layers need more than one, or the edges themselves.

    Attributes:
        adjacencies: one for each :class:`GraphSpec` of the model.
        edge_index: the graph as it was given, for layers that run as PyG's own code.
        edge_weight: its weights.
        num_nodes: number of nodes.
        inputs: further arguments of the trained forward that float parts read, by name.
    """

    adjacencies: tuple[Adjacency, ...]
    edge_index: Any
    edge_weight: Tensor | None
    num_nodes: int
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def part(self, name: str) -> Any:
        """The edges, their weights, or a further input."""
        if name in PARTS:
            return getattr(self, name)
        return self.inputs.get(name)

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """What the adjacencies consist of, and the edges where they are plain tensors."""
        edges = (self.edge_index, self.edge_weight, *self.inputs.values())
        plain = (t for t in edges if isinstance(t, Tensor) and t.layout == torch.strided)
        return (*(part for held in self.adjacencies for part in held.tensors), *plain)

    @property
    def nbytes(self) -> int:
        """Bytes of the adjacencies."""
        return sum(adjacency.nbytes for adjacency in self.adjacencies)

    @property
    def shape(self) -> tuple[int, int]:
        """``(N, N)``."""
        return self.num_nodes, self.num_nodes

    @property
    def device(self) -> torch.device:
        """Device of the adjacencies, or where there is none of the edges or the inputs."""
        for held in (*self.adjacencies, self.edge_index, *self.inputs.values()):
            if hasattr(held, "device"):
                return _device_of(held)
        return torch.device("cpu")

    @property
    def num_cols(self) -> int:
        """Number of nodes."""
        return self.num_nodes

    @property
    def nnz(self) -> int:
        """Number of edges of the largest adjacency."""
        return max([0, *(adjacency.nnz for adjacency in self.adjacencies)])

    def to(self, device: torch.device | str) -> PreparedGraph:
        """The same graph on another device."""
        moved = tuple(adjacency.to(device) for adjacency in self.adjacencies)
        edges, weight = (
            None if part is None else part.to(device)
            for part in (self.edge_index, self.edge_weight)
        )
        inputs = {
            name: value.to(device) if isinstance(value, Tensor) else value
            for name, value in self.inputs.items()
        }
        return PreparedGraph(moved, edges, weight, self.num_nodes, inputs)


pytrees.register(
    FloatAdjacency,
    ("rowptr", "indices", "values"),
    lambda held: (list(held.tensors), held.num_cols),
    lambda leaves, num_cols: FloatAdjacency(leaves[0], leaves[1], leaves[2], num_cols),
)
pytrees.register(
    PreparedGraph,
    ("adjacencies", "edge_index", "edge_weight", "inputs"),
    lambda held: (
        [held.adjacencies, held.edge_index, held.edge_weight, dict(held.inputs)],
        held.num_nodes,
    ),
    lambda leaves, num_nodes: PreparedGraph(
        tuple(leaves[0]), leaves[1], leaves[2], num_nodes, leaves[3]
    ),
)


def _device_of(held: Any) -> torch.device:
    device: Any = held.device
    found: torch.device = device() if callable(device) else device  # a method of SparseTensor
    return found


def _weighted_edges(
    edge_index: Any, weight: Tensor | None, flow: str
) -> tuple[Tensor, Tensor | None]:
    """Sources and destinations ``[2, E]`` with weights, from an index or a sparse adjacency."""
    if is_sparse(edge_index):
        (sources, destinations), weight = to_edge_index(edge_index)
        return torch.stack([destinations, sources]), weight
    edges = edge_index.as_subclass(Tensor)
    return edges.flip(0) if flow == "target_to_source" else edges, weight
