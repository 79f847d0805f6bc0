"""Base of SAGEConv and GraphConv: neighbours and node, each through its own product."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import is_sparse

from bitgnn.bits import BitAdjacency
from bitgnn.nn.adjacencies import kept_adjacency, neighbour_adjacency
from bitgnn.nn.aggregation import IntegerProduct
from bitgnn.nn.binary_layer import BinaryLayer
from bitgnn.nn.inputs.looked_up_products import Part
from bitgnn.nn.map_linear import is_hooked
from bitgnn.nn.norms import ProductNorm
from bitgnn.nn.spread import SpreadGraph, no_weights
from bitgnn.quantize import fast_dropout

Sizes = tuple[int, int]
Pair = tuple[Tensor, Tensor | None]

MEAN_ROOT = 0.3
"""Initial size of a node's own product relative to a mean of neighbours."""


class _Graph(NamedTuple):
    """A graph in any form, its weights ``[E]`` or None, and numbers of destinations and sources."""

    edges: Any
    weight: Tensor | None
    sizes: Sizes


class NeighbourLayer(BinaryLayer):
    """Mixin of layers ``aggregate(x) W^T + b + x W_root^T``, which binary forms reorder.

    A sum or mean of neighbours commutes with the linear map: the product comes first, so that the
    aggregation moves few bits or floats a feature and letters read as in every other layer.
    """

    propagate: Any
    propagate_type: dict[str, Any]

    def _add_norms(self, in_channels: int | Sizes, out_channels: int) -> None:
        """Add the norms; the nodes' own product gets one like the neighbours'."""
        super()._add_norms(in_channels, out_channels)
        kinds = self._letters if self._forms is None else self._forms["hidden"]
        has_own = kinds.looks_up and len(list(self._products())) > 1
        normed = has_own and kinds.hidden_norm
        self.root_norm = ProductNorm(out_channels) if normed else None
        self.root_gain_level = torch.nn.Parameter(torch.zeros(1)) if has_own else None
        # A mean of neighbours varies less than one node, whose noise would decide all signs.
        self.root_start = MEAN_ROOT if self._reduction == "mean" else 1.0
        self._start_root()

    def _start_root(self) -> None:
        """Start the nodes' own product at its share."""
        if isinstance(self.root_norm, torch.nn.BatchNorm1d):
            torch.nn.init.constant_(self.root_norm.weight, self.root_start)

    def reset_parameters(self) -> None:
        """Draw the weights anew and reset the norms."""
        super().reset_parameters()
        if getattr(self, "root_norm", None) is not None:
            self._start_root()

    @property
    def _maps(self) -> tuple[Any, Any]:
        """Linear maps of the neighbours, whose bias follows the aggregation, and of the node."""
        linear, *root = self._products()
        return linear, root[0] if root else None

    @property
    def _root_norm(self) -> Any:
        return None if self._letters.hidden_norm is None else self.root_norm

    def _binary_forward(
        self,
        pair: Pair,
        edges: Any,
        weight: Tensor | None,
        size: tuple[int | None, int | None] | None,
    ) -> Tensor:
        """The layer's output in a binary form, before any normalisation of its own."""
        self._needs_edges(edges)
        # PyG reads the sources from the first of a pair whatever the flow of the edges is.
        source = pair[0]
        if source is None:
            raise ValueError(f"{type(self).__name__}: x must hold the features of the sources")
        graph = _Graph(edges, weight, self._sizes(pair, edges, size))
        linear, root = self._maps
        node = pair[1] if root is not None else None
        if self._aggregates_messages:
            # PyG's order, for aggregations that do not commute with the product.
            if self.input_bits is not None:
                self._look_at_sources(self._prepare(source), linear, root)
            s = self._plain_product(self._prepare(self._propagate(pair, graph)), linear)
            s = s if linear.bias is None else s + linear.bias
            root_term = None if node is None else self._root_product(node)
        else:
            u = self._prepare(source)
            messages = self._shows_messages or self._sums_float_edges(edges)
            integers = None if messages else self._integers(u, linear)
            alone = self._sums_alone(integers)
            z, root_term = self._products_of(u, source, node, alone)
            s = self._aggregate_hidden(z, graph, linear.bias, integers)
            s = s.to(u.dtype) if alone else s
        return self._output(s if root_term is None else s + root_term)

    def _products_of(
        self, u: Tensor, source: Tensor, node: Tensor | None, root_alone: bool
    ) -> tuple[Tensor | None, ...]:
        """Products of the sources, prepared as ``u``, and of the nodes; one where both are one.

        With ``root_alone`` the former is left out, where input bits are looked up.
        """
        linear, root = self._maps
        if self.input_bits is not None:
            return self._looked_up_products_of(linear, root, u, source, node, root_alone)
        apart = is_hooked(linear) or (root is not None and is_hooked(root))
        if node is None or node is not source or apart:
            root_term = None if node is None else self._root_product(node)
            return self._hidden(self._map_product(linear, u, self._signs_product)), root_term
        weight = self._ready(linear, u)
        width = weight.size(0)
        both = torch.cat([weight, self._ready(root, u)])
        out = self._product(u, both, width if self._signs_product else 0)
        return self._hidden(out[..., :width]), out[..., width:]

    def _looked_up_products_of(
        self,
        linear: Any,
        root: Any,
        u: Tensor,
        source: Tensor,
        node: Tensor | None,
        root_alone: bool,
    ) -> tuple[Tensor | None, ...]:
        """The same from looked-up bits; those of the sources serve for nodes among them."""
        bits, apart = self.input_bits, self.root_bits
        assert bits is not None
        self._look_at_sources(u, linear, root)
        part = Part(linear, self._norm, self._to_signs)
        seen = self._see(u, bits, self._input_dropout)
        if node is source and apart is None:
            own = Part(root, self._root_norm, is_root=True)
            if root_alone:
                return None, self._bits_product(seen, bits, own)
            return self._bits_products(seen, bits, part, own)
        z = None if root_alone else self._bits_product(seen, bits, part)
        if node is None:
            return z, None
        if node is not source:
            u = self._prepare(node)
        if apart is not None:
            bits = apart
        if node is not source or apart is not None:
            self._look(u, bits, root)
        own = Part(root, self._root_norm, is_root=True)
        return z, self._bits_product(self._see(u, bits, self._input_dropout), bits, own)

    def _look_at_sources(self, u: Tensor, linear: Any, root: Any) -> None:
        """Look up the source features' bits, shared by the root map unless its features differ."""
        shares = root is not None and self.root_bits is None
        self._look(u, self.input_bits, linear, *((root,) if shares else ()))

    def _root_product(self, node: Tensor) -> Tensor:
        v, root = self._prepare(node), self._maps[1]
        if self.root_bits is not None:
            self._look(v, self.root_bits, root)
        return self._plain_product(v, root)

    def _plain_product(self, u: Tensor, linear: Any) -> Tensor:
        """A product to floats without norm."""
        bits = self.input_bits
        if bits is None:
            return self._map_product(linear, u)
        is_root = linear is not self._maps[0]
        if is_root and self.root_bits is not None:
            bits = self.root_bits
        seen = self._see(u, bits, self._input_dropout)
        return self._bits_product(seen, bits, Part(linear, None, is_root=is_root))

    def _aggregate_hidden(
        self,
        z: Tensor | None,
        graph: _Graph,
        bias: Tensor | None,
        integers: IntegerProduct | None,
    ) -> Tensor:
        """Sum or mean of the neighbours' products, plus the bias."""
        edges, weight, sizes = graph
        if z is None or not self._sums_float_edges(edges):
            adjacency = edges
            options = {"reduction": self._reduction or "add", "flow": self.flow}
            if isinstance(edges, SpreadGraph):
                no_weights(type(self).__name__, weight)
                adjacency = edges.pattern(kind="neighbours", **options)
            elif not isinstance(edges, BitAdjacency):
                adjacency = kept_adjacency(neighbour_adjacency, edges, weight, *sizes, **options)
            if adjacency.shape != sizes:
                raise ValueError(
                    f"{type(self).__name__}: the adjacency must be {sizes[0]} x {sizes[1]} like "
                    f"the nodes, got {adjacency.shape[0]} x {adjacency.shape[1]}"
                )
            if z is None or not self._shows_messages:
                return self._aggregate_pattern(z, adjacency, bias, integers)
            if weight is not None and adjacency.values is None:
                factors = self._edge_factors(edges, adjacency, weight).to(z.dtype)
                graph = graph._replace(weight=factors)
        out = self._propagate((self._as_messages(z), None), graph)
        return out if bias is None else out + bias

    def _sums_float_edges(self, edges: Any) -> bool:
        """True if the letters ask for float edges and the graph has some."""
        is_ready = isinstance(edges, BitAdjacency | SpreadGraph)
        return self._letters.bspmm[1] == "F" and not is_ready

    def _propagate(self, pair: Pair, graph: _Graph) -> Tensor:
        """PyG's message passing."""
        edges, weight, (num_destinations, num_sources) = graph
        if self.flow == "target_to_source":
            if num_destinations != num_sources:
                raise ValueError(
                    f"{type(self).__name__}: flow 'target_to_source' needs as many sources as "
                    f"destinations, got {num_sources} and {num_destinations}"
                )
            pair = (pair[0], pair[0])
        x: Any = pair
        one = num_destinations == num_sources and (pair[1] is None or pair[1] is pair[0])
        if self.decomposed_layers > 1 and one and not is_sparse(edges):
            # PyG cuts single tensors into layers, not pairs.
            x = pair[0]
            edges = edges.as_tensor() if isinstance(edges, EdgeIndex) else edges
        arguments = {"x": x, "edge_weight": weight}
        out: Tensor = self.propagate(
            edges,
            size=(num_sources, num_destinations),
            **{name: arguments[name] for name in self.propagate_type},
        )
        return out

    def _sizes(self, pair: Pair, edges: Any, size: tuple[int | None, int | None] | None) -> Sizes:
        """Numbers of destinations and sources, found by PyG's rules."""
        num_sources = pair[0].size(self.node_dim)
        toward = 1 if self.flow == "source_to_target" else 0
        told = None if size is None else size[toward]
        if isinstance(edges, BitAdjacency) or is_sparse(edges):
            told = int(edges.shape[0] if isinstance(edges, BitAdjacency) else edges.size(0))
        elif isinstance(edges, EdgeIndex):
            told = edges.get_sparse_size(toward)
        destination = pair[1]
        if isinstance(destination, Tensor):
            held = destination.size(self.node_dim)
            if told is not None and told != held:
                raise ValueError(
                    f"{type(self).__name__}: x holds {held} destinations, "
                    f"the graph or size says {told}"
                )
            told = held
        return (num_sources if told is None else told), num_sources


def dropped(x: Any, p: float, training: bool) -> Any:
    """Dropout on one tensor or on both sides of a pair."""
    if isinstance(x, Tensor):
        return fast_dropout(x, p, training)
    return tuple(None if side is None else fast_dropout(side, p, training) for side in x)
