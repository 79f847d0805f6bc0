"""Base of SAGEConv and GraphConv: neighbours and node, each through its own product."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import is_sparse

from bitgnn.bits import BitAdjacency
from bitgnn.nn.aggregation import IntegerProduct, kept_adjacency, neighbour_adjacency
from bitgnn.nn.binary_layer import BinaryLayer
from bitgnn.nn.looked_up_products import Part
from bitgnn.quantize import fast_dropout

__all__ = ["NeighbourLayer", "dropped"]

Sizes = tuple[int, int]

MEAN_ROOT = 0.3
"""Initial size of a node's own product beside a mean of neighbours."""


class NeighbourLayer(BinaryLayer):
    """Mixin of layers ``aggregate(x) W^T + b + x W_root^T``, which binary forms reorder.

    A sum or mean of neighbours commutes with the linear map: the product comes first, so that the
    aggregation moves few bits or floats a feature and letters read as in every other layer.
    """

    def _add_norms(self, in_channels: int | Sizes, out_channels: int) -> None:
        """Norms and, behind the nodes' own product, one like that of the neighbours."""
        super()._add_norms(in_channels, out_channels)
        kinds = self.letters if self._forms is None else self._forms["hidden"]
        has_own = kinds.looks_up and len(list(self._products())) > 1
        normed = has_own and kinds.hidden_norm
        self.root_norm = torch.nn.BatchNorm1d(out_channels) if normed else None
        self.root_gain_level = torch.nn.Parameter(torch.zeros(1)) if has_own else None
        # A mean of neighbours varies less than one node, whose noise would decide all signs.
        self.root_start = MEAN_ROOT if self._reduction == "mean" else 1.0
        self._start_root()

    def _start_root(self) -> None:
        """The nodes' own product begins at its share."""
        if isinstance(self.root_norm, torch.nn.BatchNorm1d):
            torch.nn.init.constant_(self.root_norm.weight, self.root_start)

    def reset_parameters(self) -> None:
        """Draw the weights anew and reset the norms."""
        super().reset_parameters()
        if getattr(self, "root_norm", None) is not None:
            self._start_root()

    def _message_arguments(self, x: Any, edge_weight: Tensor | None) -> Any:
        """Keyword arguments of the class's ``propagate``."""
        raise NotImplementedError

    def _binary_forward(
        self,
        pair: tuple[Tensor, Tensor | None],
        graph: Any,
        edge_weight: Tensor | None,
        size: tuple[int | None, int | None] | None,
        linear: torch_geometric.nn.Linear,
        root: torch_geometric.nn.Linear | None,
    ) -> Tensor:
        """The layer's output in a binary form, before any normalisation of its own.

        Args:
            pair: features of both sides, as PyG orders them.
            graph: the graph in any form.
            edge_weight: ``[E]`` or None.
            size: nodes of both sides, or None.
            linear: map of the neighbours, whose bias follows the aggregation.
            root: map of the node itself, or None.
        """
        self._needs_edges(graph)
        # PyG reads the sources from the first of a pair whatever the flow of the edges is.
        source = pair[0]
        if source is None:
            raise ValueError(f"{type(self).__name__}: x must hold the features of the sources")
        sizes = self._sizes(pair, source, graph, size)
        node = pair[1] if root is not None else None
        if self._aggregates_messages:
            s, root_term = self._aggregate_first(
                pair, node, graph, edge_weight, sizes, linear, root
            )
        else:
            u = self._prepare(source)
            messages = self._shows_messages or self._sums_float_edges(graph)
            integers = None if messages else self._integers(u, linear)
            alone = self._sums_alone(integers)
            z, root_term = self._products_of(u, source, node, linear, root, alone)
            s = self._aggregate_hidden(z, graph, edge_weight, sizes, linear.bias, integers)
            s = s.to(u.dtype) if alone else s
        return self._output(s if root_term is None else s + root_term)

    def _products_of(
        self,
        u: Tensor,
        source: Tensor,
        node: Tensor | None,
        linear: torch_geometric.nn.Linear,
        root: torch_geometric.nn.Linear | None,
        root_alone: bool,
    ) -> tuple[Tensor | None, ...]:
        """Products of the sources, prepared as ``u``, and of the nodes; one where both are one.

        With ``root_alone`` the former is left out, where input bits are looked up.
        """
        if self.input_bits is not None:
            return self._looked_up_products_of(u, source, node, linear, root, root_alone)
        weight = self._ready(linear, u)
        if root is None or node is None or node is not source:
            root_term = None if root is None or node is None else self._root_product(node, root)
            return self._hidden(self._product(u, weight, self._signs_product)), root_term
        width = weight.size(0)
        both = torch.cat([weight, self._ready(root, u)])
        out = self._product(u, both, width if self._signs_product else 0)
        return self._hidden(out[..., :width]), out[..., width:]

    def _looked_up_products_of(
        self,
        u: Tensor,
        source: Tensor,
        node: Tensor | None,
        linear: torch_geometric.nn.Linear,
        root: torch_geometric.nn.Linear | None,
        root_alone: bool,
    ) -> tuple[Tensor | None, ...]:
        """The same from looked-up bits; those of the sources serve for nodes among them."""
        assert self.input_bits is not None
        apart = self.root_bits
        if node is not None and node is not source:
            self._tell_producers(node)
        self._look_at_sources(u, linear, root)
        weight = self._ready(linear, u)
        seen = self._see(u, self.input_bits, self.dropout)
        normed = self.letters.hidden_norm is not None
        norm = self.hidden_norm if normed else None
        bits = self.input_bits
        part = Part(weight, norm, self.letters.bmm[2] == "B")
        if root is None or node is None:
            return None if root_alone else self._bits_product(seen, bits, part), None
        root_norm = self.root_norm if normed else None
        if node is source and apart is None:
            own = Part(self._ready(root, u), root_norm, is_root=True)
            if root_alone:
                return None, self._bits_product(seen, bits, own)
            return self._bits_products(seen, bits, part, own)
        z = None if root_alone else self._bits_product(seen, bits, part)
        if node is not source:
            u = self._prepare(node)
        if apart is not None:
            bits = apart
            self._look(u, apart, root)
        own = Part(self._ready(root, u), root_norm, is_root=True)
        return z, self._bits_product(self._see(u, bits, self.dropout), bits, own)

    def _look_at_sources(self, u: Tensor, linear: Any, root: Any) -> None:
        """What the sources are made of, which the node's own map takes, too, unless they differ."""
        shares = root is not None and self.root_bits is None
        self._look(u, self.input_bits, linear, *((root,) if shares else ()))

    def _root_product(self, node: Tensor, root: torch_geometric.nn.Linear) -> Tensor:
        v = self._prepare(node)
        if self.root_bits is not None:
            self._look(v, self.root_bits, root)
        return self._plain_product(v, root)

    def _plain_product(self, u: Tensor, linear: torch_geometric.nn.Linear) -> Tensor:
        """A product to floats without norm."""
        weight, bits = self._ready(linear, u), self.input_bits
        if bits is None:
            return self._product(u, weight)
        is_root = linear is not next(iter(self._products()))
        if is_root and self.root_bits is not None:
            bits = self.root_bits
        seen = self._see(u, bits, self.dropout)
        return self._bits_product(seen, bits, Part(weight, None, is_root=is_root))

    def _aggregate_hidden(
        self,
        z: Tensor | None,
        graph: Any,
        edge_weight: Tensor | None,
        sizes: Sizes,
        bias: Tensor | None,
        integers: IntegerProduct | None,
    ) -> Tensor:
        """Sum or mean of the neighbours' products, plus the bias."""
        if z is not None and self._sums_float_edges(graph):
            return self._pass_messages(z, graph, edge_weight, sizes, bias)
        adjacency = self._bit_adjacency(graph, edge_weight, sizes)
        if adjacency.shape != sizes:
            raise ValueError(
                f"{type(self).__name__}: the adjacency must be {sizes[0]} x {sizes[1]} like the "
                f"nodes, got {adjacency.shape[0]} x {adjacency.shape[1]}"
            )
        self._warn_of_factors(adjacency, edge_weight)
        if z is None or not self._shows_messages:
            return self._aggregate_pattern(z, adjacency, bias, integers)
        factors = None if edge_weight is None else self._edge_factors(graph, adjacency).to(z.dtype)
        return self._pass_messages(z, graph, factors, sizes, bias)

    def _sums_float_edges(self, graph: Any) -> bool:
        """Whether the letters ask for float edges and the graph has some."""
        return self.letters.bspmm[1] == "F" and not isinstance(graph, BitAdjacency)

    def _bit_adjacency(self, graph: Any, edge_weight: Tensor | None, sizes: Sizes) -> BitAdjacency:
        if isinstance(graph, BitAdjacency):
            return graph
        return kept_adjacency(
            neighbour_adjacency,
            graph,
            edge_weight,
            *sizes,
            reduction=self._reduction or "add",
            flow=self.flow,
        )

    def _pass_messages(
        self,
        z: Tensor,
        graph: Any,
        edge_weight: Tensor | None,
        sizes: Sizes,
        bias: Tensor | None,
    ) -> Tensor:
        """PyG's aggregation of the products, plus the bias."""
        out = self._propagate((self._as_messages(z), None), graph, edge_weight, sizes)
        return out if bias is None else out + bias

    def _propagate(
        self,
        pair: tuple[Tensor, Tensor | None],
        graph: Any,
        edge_weight: Tensor | None,
        sizes: Sizes,
    ) -> Tensor:
        """PyG's message passing."""
        num_destinations, num_sources = sizes
        if self.flow == "target_to_source":
            if num_destinations != num_sources:
                raise ValueError(
                    f"{type(self).__name__}: flow 'target_to_source' needs as many sources as "
                    f"destinations, got {num_sources} and {num_destinations}"
                )
            pair = (pair[0], pair[0])
        x: Any = pair
        one = num_destinations == num_sources and (pair[1] is None or pair[1] is pair[0])
        if self.decomposed_layers > 1 and one and not is_sparse(graph):
            # PyG cuts single tensors into layers, not pairs.
            x = pair[0]
            graph = graph.as_tensor() if isinstance(graph, EdgeIndex) else graph
        arguments = self._message_arguments(x, edge_weight)
        out: Tensor = self.propagate(  # type: ignore[attr-defined]
            graph, size=(num_sources, num_destinations), **arguments
        )
        return out

    def _aggregate_first(
        self,
        pair: tuple[Tensor, Tensor | None],
        node: Tensor | None,
        graph: Any,
        edge_weight: Tensor | None,
        sizes: Sizes,
        linear: torch_geometric.nn.Linear,
        root: torch_geometric.nn.Linear | None,
    ) -> tuple[Tensor, Tensor | None]:
        """PyG's order, for aggregations that do not commute with the product."""
        if self.input_bits is not None:
            self._look_at_sources(self._prepare(pair[0]), linear, root)
        h = self._prepare(self._propagate(pair, graph, edge_weight, sizes))
        s = self._plain_product(h, linear)
        if linear.bias is not None:
            s = s + linear.bias
        return s, None if root is None or node is None else self._root_product(node, root)

    def _sizes(
        self,
        pair: tuple[Tensor, Tensor | None],
        source: Tensor,
        graph: Any,
        size: tuple[int | None, int | None] | None,
    ) -> Sizes:
        """Numbers of destinations and sources; PyG's rules for what tells them."""
        num_sources = source.size(self.node_dim)
        toward = 1 if self.flow == "source_to_target" else 0
        told = None if size is None else size[toward]
        if isinstance(graph, BitAdjacency) or is_sparse(graph):
            told = int(graph.shape[0] if isinstance(graph, BitAdjacency) else graph.size(0))
        elif isinstance(graph, EdgeIndex):
            told = graph.get_sparse_size(toward)
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
