"""Graph layers with a binary form: a row each, of what swapping and freezing ask of the class."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch_geometric.nn
from torch import Tensor, nn

import bitgnn.nn
from bitgnn.nn import RGCNConv
from bitgnn.nn.sum_linear import SumLinear


@dataclass(frozen=True)
class GraphLayer:
    """Conversion rule of a graph layer.

    Attributes:
        kind: PyG's class, of which the binary one, ``binary``, is a subclass.
        neighbours: name of the map of the neighbours.
        root: name of the map of the node itself; empty where there is none.
        further: names of other maps.
        bias: where the bias stands.
        options: arguments of the constructor that are attributes of the same name.
        adjacency: fields of :class:`~bitgnn.inference.GraphSpec` that are attributes of the layer.
        uses_sparse_values: whether the values of a sparse adjacency count.
        transforms_first: whether PyG multiplies in front of the aggregation.
        normalizes_rows: whether ``normalize`` means rows of the result.
    """

    kind: type[nn.Module]
    binary: type[nn.Module]
    neighbours: str
    root: str = ""
    further: tuple[str, ...] = ()
    bias: str = "bias"
    options: tuple[str, ...] = ()
    adjacency: tuple[str, ...] = ()
    uses_sparse_values: bool = True
    transforms_first: bool = False
    normalizes_rows: bool = False

    @property
    def tensors(self) -> frozenset[str]:
        """Names of the layer's parameters."""
        weights = (f"{name}.weight" for name in (self.neighbours, self.root, *self.further) if name)
        return frozenset((*weights, *(f"{name}.bias" for name in self.further), self.bias))

    def maps(self, layer: Any) -> tuple[Any, Any]:
        """The map of the neighbours and that of the root node, if any."""
        has_root = bool(self.root) and getattr(layer, "root_weight", True)
        return getattr(layer, self.neighbours), getattr(layer, self.root) if has_root else None

    def bias_of(self, layer: Any) -> Tensor | None:
        """The bias."""
        found: Tensor | None = attrgetter(self.bias)(layer)
        return found

    def binary_form(self, layer: Any, **options: Any) -> nn.Module:
        """A layer of the binary class with the arguments of another layer, and further ones."""
        own = {name: getattr(layer, name) for name in self.options}
        has_bias, sizes = self.bias_of(layer) is not None, layer.in_channels
        neighbours, root = self.maps(layer)
        if root is not None and neighbours.in_channels != root.in_channels:
            # Both widths were left to the first input (-1), which was a pair.
            sizes = neighbours.in_channels, root.in_channels
        return self.binary(sizes, layer.out_channels, bias=has_bias, **own, **options)


@dataclass(frozen=True)
class AttentionRow(GraphLayer):
    """Conversion rule of an attention layer: heads, and a dropout of its own."""

    parameters: tuple[str, ...] = ()

    @property
    def tensors(self) -> frozenset[str]:
        """Names of the layer's parameters."""
        maps = (self.neighbours, self.root, *self.further)
        names = (f"{name}.{end}" for name in maps if name for end in ("weight", "bias"))
        return frozenset((*names, *self.parameters, self.bias))

    def maps(self, layer: Any) -> tuple[Any, Any]:
        """The map of the sources, alone."""
        first = getattr(layer, self.neighbours)
        return (layer.lin_src if first is None else first), None

    def binary_form(self, layer: Any, **options: Any) -> nn.Module:
        """The same with the layer's own dropout, of its coefficients."""
        kept = {name: value for name, value in options.items() if name != "node_dim"}
        return super().binary_form(layer, **{**kept, "dropout": layer.dropout})


_OF_HEADS = (
    "heads", "concat", "negative_slope", "add_self_loops", "edge_dim", "fill_value", "residual",
)  # fmt: skip
LAYERS = (
    GraphLayer(
        torch_geometric.nn.GCNConv,
        bitgnn.nn.GCNConv,
        "lin",
        options=("improved", "cached", "add_self_loops", "normalize"),
        adjacency=("improved", "add_self_loops", "normalize"),
        transforms_first=True,
    ),
    GraphLayer(
        torch_geometric.nn.SAGEConv,
        bitgnn.nn.SAGEConv,
        "lin_l",
        "lin_r",
        ("lin",),
        "lin_l.bias",
        ("normalize", "root_weight", "project"),
        uses_sparse_values=False,
        normalizes_rows=True,
    ),
    GraphLayer(
        torch_geometric.nn.GraphConv,
        bitgnn.nn.GraphConv,
        "lin_rel",
        "lin_root",
        bias="lin_rel.bias",
    ),
    AttentionRow(
        torch_geometric.nn.GATConv,
        bitgnn.nn.GATConv,
        "lin",
        further=("lin_src", "lin_dst", "lin_edge", "res"),
        options=_OF_HEADS,
        adjacency=("add_self_loops",),
        uses_sparse_values=False,
        parameters=("att_src", "att_dst", "att_edge"),
    ),
    AttentionRow(
        torch_geometric.nn.GATv2Conv,
        bitgnn.nn.GATv2Conv,
        "lin_l",
        further=("lin_r", "lin_edge", "res"),
        options=(*_OF_HEADS, "share_weights"),
        adjacency=("add_self_loops",),
        uses_sparse_values=False,
        parameters=("att",),
    ),
)
"""A new graph layer has a row here, and its own file in :mod:`bitgnn.nn`."""

SUM = GraphLayer(
    SumLinear, SumLinear, "", bias="bias", uses_sparse_values=False, transforms_first=True
)
"""The map inside of GINConv, whose forward is traced like a model's."""

RELATIONS = GraphLayer(
    RGCNConv, RGCNConv, "", bias="bias", uses_sparse_values=False, transforms_first=True
)
"""The layer of many relations, whose parameters are no linear maps."""

SUPPORTED: tuple[type[nn.Module], ...] = tuple(row.kind for row in LAYERS)


def row_of(layer: nn.Module) -> GraphLayer:
    """The row of a layer of one of :data:`SUPPORTED`."""
    return next(row for row in LAYERS if isinstance(layer, row.kind))
