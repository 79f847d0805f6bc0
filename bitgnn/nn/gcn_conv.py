"""GCNConv with binary products: PyG's layer plus a precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import OptTensor, SparseTensor
from torch_geometric.utils import add_remaining_self_loops

from bitgnn.bits import BitAdjacency
from bitgnn.nn.adjacencies import IMPROVED_SELF_LOOP, gcn_adjacency, kept_adjacency
from bitgnn.nn.binary_layer import BinaryLayer
from bitgnn.nn.inputs.float_inputs import float_features
from bitgnn.nn.inputs.looked_up_products import Part
from bitgnn.nn.precision import LayerPrecision, Role
from bitgnn.nn.spread import SpreadGraph, SpreadPattern, no_weights
from bitgnn.quantize import fast_dropout
from bitgnn.quantize.looked_up_linear import InputWords, centred_bits

OWN_BITS = 2.0
"""Weight of a node's own -1/+1 bits against its aggregate: less wins little, more drowns it."""


class GCNConv(BinaryLayer, torch_geometric.nn.GCNConv):
    r"""PyG's ``GCNConv`` whose two products can be binary.

    With :math:`\hat A = \hat D^{-1/2}(A + I)\hat D^{-1/2}`, :math:`\alpha_i = \mathrm{mean}|X_i|`
    and :math:`m_o = \mathrm{mean}|W_o|`:

    * ``"fp32"``: :math:`\hat A X W^\top + b`, PyG's own code.
    * ``"full"`` (``"FBF+FBF"``): :math:`\hat A Y + b` with
      :math:`Y_{io} = \alpha_i m_o\,\mathrm{sgn}(X_i)\cdot\mathrm{sgn}(W_o)` (Bi-GCN).
    * ``"bin"`` (``"FBB+BBF"``): :math:`\hat D^{-1/2} (A + I)\,\mathrm{sgn}(Y) + b`; on bits the
      column factor cannot act and is left out.
    * letters ``"xyz+xyz"``: activation, weight and output of the dense product, then activation,
      adjacency and output of the aggregation. A B activation of the dense product is used only
      by its sign; an F weight is used as it is; a B output is :math:`\mathrm{sgn}` of the value, as
      floats +1 and -1; an F adjacency is :math:`\hat A` in floats, whatever the weights. A T
      activation is ternary, {-1, 0, +1} times a learnt scale, only with a B weight or adjacency;
      in the aggregation it is made of the floats of the product, and the column factor is left out
      as on bits.
    * a :class:`~bitgnn.nn.LayerPrecision` also places norms and hardtanh and chooses the rules of
      the backward pass.

    The layer computes in floats with surrogate gradients what the frozen layer computes on bits.
    The bias is added after the aggregation, as in PyG. Any ``edge_weight`` is exact in every form
    and gets its gradient: where the weights into a node differ, self loops included, the values of
    :math:`\hat A` take the place of both factors, on bits, too. An explainer or a message hook
    makes the aggregation run on PyG's messages, weighted the same: same values, masks act.

    Sources: Kipf and Welling 2017; Wang et al., Bi-GCN, 2021; Chen et al., BitGNN, 2023.

    Args:
        in_channels: size of each input sample, or -1 to take it from the first input.
        out_channels: size of each output sample.
        improved: as in PyG.
        cached: keep the normalised graph of the first call.
        add_self_loops: as in PyG.
        normalize: as in PyG.
        bias: as in PyG.
        precision: ``"fp32"``, ``"full"``, ``"bin"``, letters, or a LayerPrecision.
        dropout: probability of dropping an activation before the dense product in training;
            in binary forms it acts on the binarised activation.
        role: ``"first"``, ``"inner"``, ``"last"`` or ``"only"`` among the binary layers of a model,
            for named precisions; None follows from the data flow when the model first trains.
        **kwargs: further arguments of PyG's ``MessagePassing``. An ``aggr`` other than sum and mean
            keeps the dense product binary and aggregates floats, with one warning.

    Raises:
        ValueError: unknown precision or ``dropout`` outside [0, 1).
    """

    propagate_type = {"x": Tensor, "edge_weight": OptTensor}  # noqa: RUF012
    _cached_adj_t: Any
    _cached_edge_index: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        improved: bool = False,
        cached: bool = False,
        add_self_loops: bool | None = None,
        normalize: bool = True,
        bias: bool = True,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        role: Role | None = None,
        **kwargs: Any,
    ) -> None:
        self._set_precision(precision, dropout, role)
        super().__init__(
            in_channels, out_channels, improved, cached, add_self_loops, normalize, bias, **kwargs
        )
        self._complete(in_channels, out_channels)

    def _products(self) -> Iterable[torch_geometric.nn.Linear]:
        return (self.lin,)

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Apply the layer.

        Args:
            x: ``[N, in_channels]`` floats (packed or not), or ``[*, N, in_channels]`` over a graph.
            edge_index: ``[2, E]`` edge index, transposed sparse adjacency (torch sparse tensor or
                ``torch_sparse.SparseTensor``), or a ``BitAdjacency``, which is used as it is:
                already normalised, no self loops added.
            edge_weight: ``[E]`` float weights of an edge index.

        Returns:
            ``[N, out_channels]`` float tensor; +1 and -1 if the output letter is B.

        Raises:
            TypeError: ``x`` is no tensor, or holds no floats.
            ValueError: ``x`` is a pair or its width is not ``in_channels``, the graph does not
                fit, or an F adjacency letter is given a ``BitAdjacency``.
        """
        self._meet_model()
        x, letters = float_features(type(self).__name__, x), self._letters
        ready = isinstance(edge_index, BitAdjacency | SpreadGraph)
        if isinstance(x, tuple | list) or (letters.is_float and not ready):
            # PyG's layer refuses pairs with a text of its own.
            if self.dropout > 0.0 and isinstance(x, Tensor):
                x = fast_dropout(x, self.dropout, self.training)
            out: Tensor = super().forward(x, edge_index, edge_weight)
            return out
        self._needs_edges(edge_index)
        u = self._prepare(x)
        self._look(u, self.input_bits, self.lin)
        nodes = u.size(self.node_dim)
        if not ready and (letters.bspmm[1] == "F" or self._aggregates_messages):
            z, own = self._hidden_of(u)
            graph, weight = self._float_graph(z, edge_index, edge_weight)
        else:
            adjacency = self._bit_adjacency(nodes, edge_index, edge_weight)
            shows = self._shows_messages
            integers = None if shows else self._integers(u, self.lin)
            if self._sums_alone(integers) and not self.has_shortcut:
                summed = self._aggregate_pattern(None, adjacency, self.bias, integers)
                return self._output(summed.to(u.dtype))
            z, own = self._hidden_of(u)
            if not shows:
                out = self._aggregate_pattern(z, adjacency, self.bias, integers)
                return self._output(out if own is None else out + own)
            assert isinstance(adjacency, BitAdjacency)
            graph, weight = self._weighted_messages(adjacency, nodes, edge_index, edge_weight)
            weight = weight.to(z.dtype)
        out = self.propagate(graph, x=self._as_messages(z), edge_weight=weight)
        out = out if self.bias is None else out + self.bias
        return self._output(out if own is None else out + own)

    @property
    def has_shortcut(self) -> bool:
        """True if the node's own bits are added to the aggregated sum."""
        bits = self.input_bits
        is_inner = bits is not None and bits.kind == "activation"
        return self.letters.shortcut and is_inner and self.lin.in_channels == self.lin.out_channels

    def _hidden_of(self, u: Tensor) -> tuple[Tensor, Tensor | None]:
        """Product of a prepared input after norm and sign, and the node's shortcut, if any."""
        bits = self.input_bits
        if bits is None:
            return self._hidden(self._map_product(self.lin, u, self._signs_product)), None
        seen = self._see(u, bits, self.dropout)
        z = self._bits_product(seen, bits, Part(self.lin, self._norm, self._to_signs))
        if not self.has_shortcut:
            return z, None
        assert isinstance(seen.operand, InputWords)
        return z, 2.0 * OWN_BITS * centred_bits(u, seen.operand)

    def _bit_adjacency(
        self, num_nodes: int, edge_index: Any, edge_weight: Tensor | None
    ) -> BitAdjacency | SpreadPattern:
        """The pattern to aggregate with: the given one, the cached one, or a new one."""
        if isinstance(edge_index, BitAdjacency):
            return edge_index
        options: dict[str, Any] = {
            "normalize": self.normalize,
            "add_self_loops": self.add_self_loops,
            "improved": self.improved,
            "flow": self.flow,
            "reduction": self._reduction or "add",
        }
        if isinstance(edge_index, SpreadGraph):
            no_weights(type(self).__name__, edge_weight)
            return edge_index.pattern(kind="gcn", **options)

        def make() -> tuple[BitAdjacency, None]:
            given = gcn_adjacency, edge_index, edge_weight, num_nodes
            return kept_adjacency(*given, **options), None

        adjacency: BitAdjacency = self._cached(edge_index, make)[0]
        return adjacency

    def _weighted_messages(
        self, adjacency: BitAdjacency, nodes: int, edges: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Edges with their loops, and the weights that the adjacency gives them."""
        if self.add_self_loops:
            own = IMPROVED_SELF_LOOP if self.improved and weight is not None else 1.0
            edges, weight = add_remaining_self_loops(edges, weight, own, nodes)
        if adjacency.values is None:
            return edges, self._edge_factors(edges, adjacency, weight)
        assert weight is not None
        if self.normalize:
            edges, weight = gcn_norm(edges, weight, nodes, False, False, self.flow)
        return edges, weight

    def _float_graph(
        self, z: Tensor, edge_index: Any, edge_weight: Tensor | None
    ) -> tuple[Any, Tensor | None]:
        """Edges and weights as PyG normalises them."""
        if not self.normalize:
            return edge_index, edge_weight

        def make() -> tuple[Any, Tensor | None]:
            nodes, loops = z.size(self.node_dim), self.add_self_loops
            options = nodes, self.improved, loops, self.flow, z.dtype
            found = gcn_norm(edge_index, edge_weight, *options)
            return (found, None) if isinstance(edge_index, SparseTensor) else found

        return self._cached(edge_index, make)

    def _cached(
        self, edge_index: Any, make: Callable[[], tuple[Any, Tensor | None]]
    ) -> tuple[Any, Tensor | None]:
        """A graph and its weights from PyG's own caches, which others look at and clear."""
        if not self.normalize:
            return make()
        is_sparse = isinstance(edge_index, SparseTensor)
        held: Any = self._cached_adj_t if is_sparse else self._cached_edge_index
        if held is not None:
            return (held, None) if is_sparse else held
        found = make()
        if self.cached and is_sparse:
            self._cached_adj_t = found[0]
        elif self.cached:
            self._cached_edge_index = found
        return found
