"""How the graph a user has becomes the adjacencies a frozen model aggregates with."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_sparse, to_edge_index

from bitgnn.bits import BitAdjacency, pytrees
from bitgnn.inference.bounds import LARGEST
from bitgnn.inference.checks import Ends
from bitgnn.inference.own_code.calls import NODES
from bitgnn.nn.adjacencies import gcn_adjacency, neighbour_adjacency, relation_adjacency
from bitgnn.nn.edge_features import edge_order
from bitgnn.nn.propagation.reductions import laplacian_adjacency
from bitgnn.ops.layout_choice import default_layout

_tensors = attrgetter("tensors")
_OF_TYPES = ("edge_type", "destinations", "sources", "relations")


@dataclass(frozen=True)
class GraphSpec:
    """Options of a layer's graph as plain values.

    Attributes:
        kind: ``"gcn"`` (self loops and symmetric normalisation), ``"neighbours"``,
            ``"laplacian"`` (symmetric normalisation by sources, without self loops), or ``"edges"``
            (entries in the order of :func:`bitgnn.nn.edge_features.edge_order`).
        reduction: ``"add"`` or ``"mean"``.
        add_self_loops: for ``"gcn"``.
        improved: for ``"gcn"``: added loops weigh 2.
        normalize: for ``"gcn"``: whether to normalise.
        flow: PyG's direction of messages.
        weighted: whether the layer is given edge weights.
        uses_sparse_values: whether values of a ``SparseTensor`` count; SAGEConv leaves them out.
        keeps_weights: values (adjacency letter F), also where factors say all.
        uses_columns: keep the pattern's column factor.
        edge_type: number of the edges among those of a heterogeneous graph.
        destinations: number of their destinations' features among the inputs.
        sources: the same of their sources.
        relations: kinds of edges that ``edge_weight`` tells apart: each source has a column for
            each of them, and a mean is one of each. 0 where it holds weights.
    """

    kind: Literal["gcn", "neighbours", "laplacian", "edges"] = "gcn"
    reduction: Literal["add", "mean"] = "add"
    add_self_loops: bool = True
    improved: bool = False
    normalize: bool = True
    flow: str = "source_to_target"
    weighted: bool = True
    uses_sparse_values: bool = True
    keeps_weights: bool = False
    uses_columns: bool = True
    edge_type: int = 0
    destinations: int = 0
    sources: int = 0
    relations: int = 0

    @property
    def holds(self) -> str:
        """``"values"`` or ``"pattern"``: what steps find in the adjacency."""
        return "values" if self.keeps_weights else "pattern"

    @property
    def ends(self) -> Ends:
        """Whose nodes are its rows and columns."""
        return Ends(self.destinations, self.sources, self.relations or 1)

    @classmethod
    def from_description(cls, description: Any) -> GraphSpec:
        """Read what ``dataclasses.asdict`` gave; a ValueError says what is wrong with it."""
        names = [entry.name for entry in fields(cls)]
        known = isinstance(description, Mapping) and set(description) <= set(names)
        if not known or not set(names) - set(description) <= set(_OF_TYPES):
            raise ValueError(f"a graph must have the entries {names}, got {description}")
        spec = cls(**description)
        flags = (getattr(spec, entry.name) for entry in fields(cls) if entry.type == "bool")
        numbers = (getattr(spec, name) for name in _OF_TYPES)
        if (
            spec.kind not in ("gcn", "neighbours", "laplacian", "edges")
            or spec.reduction not in ("add", "mean")
            or spec.flow not in ("source_to_target", "target_to_source")
            or not all(type(flag) is bool for flag in flags)
            or not all(type(n) is int and 0 <= n <= LARGEST for n in numbers)
        ):
            raise ValueError(f"a graph has an unknown option: {description}")
        return spec

    def build(
        self, edge_index: Any, num_nodes: int | tuple[int, int], edge_weight: Tensor | None
    ) -> BitAdjacency:
        """The adjacency for a graph of so many nodes, or destinations and sources.

        Raises:
            ValueError: the graph does not fit ``num_nodes``.
        """
        weight = edge_weight if self.weighted else None
        sizes = num_nodes if isinstance(num_nodes, tuple) else (num_nodes, num_nodes)
        if self.relations:
            return relation_adjacency(
                edge_index, *sizes, weight, relations=self.relations, reduction=self.reduction,
                flow=self.flow,
            )  # fmt: skip
        if not self.uses_sparse_values and isinstance(edge_index, SparseTensor):
            edge_index = edge_index.set_value(None, layout=None)
        if self.keeps_weights:
            return self._build_floats(edge_index, sizes, weight)
        if self.kind == "edges":
            return edge_order(edge_index, sizes[0], self.add_self_loops, self.flow).adjacency
        if self.kind == "laplacian":
            made = laplacian_adjacency(edge_index, sizes[0], weight, flow=self.flow)
        elif self.kind == "gcn":
            made = gcn_adjacency(
                edge_index,
                sizes[0],
                weight,
                normalize=self.normalize,
                add_self_loops=self.add_self_loops,
                improved=self.improved,
                flow=self.flow,
                reduction=self.reduction,
            )
        else:
            made = neighbour_adjacency(
                edge_index, *sizes, weight, reduction=self.reduction, flow=self.flow
            )
        if self.uses_columns or made.col_scale is None:
            return made
        return BitAdjacency(made.rowptr, made.indices, made.num_cols, made.row_scale)

    def _build_floats(
        self, edge_index: Any, sizes: tuple[int, int], weight: Tensor | None
    ) -> BitAdjacency:
        num_nodes, num_sources = sizes
        if self.kind == "gcn" and self.normalize:
            normalized = gcn_norm(
                edge_index, weight, num_nodes, self.improved, self.add_self_loops, self.flow
            )
            is_pair = isinstance(normalized, tuple)
            edge_index, weight = normalized if is_pair else (normalized, None)
        if is_sparse(edge_index):
            (sources, destinations), weight = to_edge_index(edge_index)
            sources, destinations = destinations, sources
        else:
            edges = edge_index.as_subclass(Tensor)
            sources, destinations = edges.flip(0) if self.flow == "target_to_source" else edges
        if weight is None:
            weight = torch.ones(sources.size(0), device=sources.device, dtype=torch.float32)
        counts = torch.bincount(destinations, minlength=num_nodes)
        if self.reduction == "mean":
            weight = weight / counts.clamp(min=1)[destinations]
        # A stable sort keeps the order in which PyG adds the messages of a node up.
        order = torch.argsort(destinations, stable=True)
        rowptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        values = weight[order].float().contiguous()
        return BitAdjacency(rowptr, sources[order].int(), num_sources, values=values)


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

    adjacencies: tuple[BitAdjacency, ...]
    edge_index: Any
    edge_weight: Tensor | None
    num_nodes: int
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def part(self, name: str) -> Any:
        """The edges, their weights, the number of nodes, or a further input."""
        if name == NODES:
            return self.num_nodes
        if name in ("edge_index", "edge_weight"):
            return getattr(self, name)
        return self.inputs.get(name)

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """Tensors of the adjacencies, and the edges where they are plain tensors."""
        found = list(chain.from_iterable(map(_tensors, self.adjacencies)))
        for part in (self.edge_index, self.edge_weight, *self.inputs.values()):
            if isinstance(part, Tensor) and part.layout is torch.strided:
                found.append(part)
        return tuple(found)

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
                device: Any = held.device
                # A method of SparseTensor, a property of everything else.
                found: torch.device = device() if callable(device) else device
                return found
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

        def moved(part: Any) -> Any:
            return part.to(device) if hasattr(part, "to") else part

        return PreparedGraph(
            tuple(map(moved, self.adjacencies)),
            moved(self.edge_index),
            moved(self.edge_weight),
            self.num_nodes,
            {name: moved(value) for name, value in self.inputs.items()},
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

Graph = BitAdjacency | PreparedGraph
"""Result of :meth:`~bitgnn.inference.FrozenModel.prepare_graph`."""

GraphLayout = Literal["auto", "csr", "sliced"]
"""How patterns are held: CSR, sliced where a graph on a GPU is dense; CSR alone; CSR with column
slices beside it."""


def check_layout(who: str, layout: Any) -> None:
    """Refuse a layout that does not exist."""
    layouts = get_args(GraphLayout)
    if layout not in layouts:
        raise ValueError(f"{who}: layout must be one of {list(layouts)}, got {layout!r}")


def lay_out(adjacency: BitAdjacency, layout: GraphLayout, widths: Iterable[int]) -> None:
    """Plan the layout of a pattern for packed rows of these numbers of words.

    Where slices are the choice of ``"auto"``, a lack of memory for them leaves the graph in CSR.
    """
    if adjacency.values is not None or layout == "csr":
        return
    for words in widths:
        if layout == "auto" and default_layout(words, adjacency) == "csr":
            continue
        try:
            adjacency.plan_slices(words)
        except torch.OutOfMemoryError:
            if layout != "auto":
                raise
            warnings.warn(
                "prepare_graph: no memory to build the sliced layout, which would be faster; the "
                "graph stays in CSR. Give layout='csr' to ask for it",
                ResourceWarning,
                stacklevel=3,
            )
            return
