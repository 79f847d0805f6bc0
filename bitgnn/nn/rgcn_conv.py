"""RGCNConv and FastRGCNConv with binary products: PyG's layers plus a precision."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor

from bitgnn.bits import BitAdjacency
from bitgnn.nn.adjacencies import kept_adjacency, relation_adjacency
from bitgnn.nn.aggregation import aggregate
from bitgnn.nn.gin_conv import name_of
from bitgnn.nn.inputs.float_inputs import as_pair, unpacked
from bitgnn.nn.inputs.input_bits import InputBits
from bitgnn.nn.inputs.looked_up_products import Part, SeenInput
from bitgnn.nn.neighbour_layer import NeighbourLayer, dropped
from bitgnn.nn.norms import ProductNorm
from bitgnn.nn.precision import LayerPrecision, Role
from bitgnn.nn.sum_linear import SumForms
from bitgnn.nn.weight_decay import give_to_decay, spare_from_decay
from bitgnn.quantize.int8_linear import InputRows


class RelationMap:
    """Maps of all relations side by side, or that of the node, in the form of a linear layer.

    ``weight`` is ``[out, in]``, made of the layer's parameters.
    """

    bias = None
    _forward_pre_hooks: dict[int, Any] = {}  # noqa: RUF012

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.out_channels, self.in_channels = weight.shape


class RGCNConv(SumForms, NeighbourLayer, torch_geometric.nn.RGCNConv):
    r"""PyG's ``RGCNConv`` whose products can be binary.

    * ``"fp32"``: :math:`\sum_r \mathrm{mean}_{j \in N_r(i)} x_j W_r + x_i W + b`, PyG's own code.
    * ``"bin"`` or ``"full"``, which mean the same: looked-up bits of x, or 8-bit rows, times signs
      of :math:`W_r` for all relations in one product; integers, so that the neighbours of all
      relations are added up over one adjacency ``[N, N * R]``. A batch norm follows where a binary
      layer reads the result, else a learnt gain of all products.

    With ``num_bases`` the signs are those of the combined weights. With ``num_blocks`` a product of
    bits, which knows no zeros, is the mean of two whose signs differ outside of the blocks. Where
    ``x`` is None or numbers of rows there is no product, and PyG's code looks the rows up.

    Source: Schlichtkrull et al., "Modeling Relational Data with Graph Convolutional
    Networks", ESWC 2018.

    Args:
        in_channels: size of each input sample, or the pair of those of sources and destinations;
            the number of nodes where there are no features.
        out_channels: size of each output sample.
        num_relations: number of relations.
        num_bases: as in PyG.
        num_blocks: as in PyG.
        aggr: as in PyG; a sum or mean in binary precisions.
        root_weight: as in PyG.
        is_sorted: as in PyG.
        bias: as in PyG.
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        dropout: of an activation before the products, in training.
        role: as in :class:`~bitgnn.nn.SAGEConv`.
        **kwargs: further arguments of PyG's ``MessagePassing``.

    Raises:
        ValueError: unknown precision, a binary one with another aggregation, or ``dropout`` outside
            [0, 1).
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        num_relations: int,
        num_bases: int | None = None,
        num_blocks: int | None = None,
        aggr: str = "mean",
        root_weight: bool = True,
        is_sorted: bool = False,
        bias: bool = True,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        role: Role | None = None,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        precision = name_of(name, precision)
        self._set_precision(precision, dropout, role)
        super().__init__(
            in_channels, out_channels, num_relations, num_bases, num_blocks, aggr, root_weight,
            is_sorted, bias, **kwargs,
        )  # fmt: skip
        why = why_not_binary(self)
        if precision != "fp32" and why is not None:
            raise ValueError(f"{name}: precision must be 'fp32', since {why}")
        self._complete(in_channels, out_channels)
        if precision != "fp32":
            self.output_norm = ProductNorm(out_channels)

    def _products(self) -> Iterable[Any]:
        return (self.relation_map,) if self.root is None else (self.relation_map, self.root_map)

    @property
    def root_weight(self) -> bool:
        """Whether the node's own features are added, as the constructor was told."""
        return self.root is not None

    def _latent_weights(self) -> Iterable[Tensor]:
        return (p for p in (self.weight, self.root, self.comp) if p is not None)

    @property
    def relation_map(self) -> RelationMap:
        """``[num_relations * out_channels, in_channels]``."""
        if self.num_blocks is not None:
            return self._block_map(0.0)
        weight = self.weight
        if self.num_bases is not None:
            weight = (self.comp @ weight.flatten(1)).view(-1, *weight.shape[1:])
        return RelationMap(weight.transpose(1, 2).flatten(0, 1))

    @property
    def halves(self) -> tuple[RelationMap, ...]:
        """Maps without zeros whose products have the mean that a product of bits wants.

        Outside of the blocks their signs are +1 in one and -1 in the other.
        """
        if self.num_blocks is None:
            return (self.relation_map,)
        return self._block_map(1.0), self._block_map(-1.0)

    def _block_map(self, outside: float) -> RelationMap:
        """The map of all relations with blocks on the diagonal."""
        relations, blocks, inputs, outputs = self.weight.shape
        whole = self.weight.new_full((relations, blocks, outputs, blocks, inputs), outside)
        place = torch.arange(blocks, device=whole.device)
        whole[:, place, :, place] = self.weight.permute(1, 0, 3, 2)
        return RelationMap(whole.view(relations * blocks * outputs, blocks * inputs))

    @property
    def root_map(self) -> RelationMap:
        """``[out_channels, in_channels]`` of the node itself."""
        return RelationMap(self.root.t().contiguous())

    @property
    def looks_at_features(self) -> bool:
        """True once a binary layer has seen features, in place of numbers of rows."""
        return self.input_bits is not None and self.input_bits.is_settled

    def _reset_product(self, linear: Any) -> None:
        """Nothing for parts made of parameters, which :meth:`reset_parameters` draws."""

    def reset_parameters(self) -> None:
        """Draw the weights anew; those of binary products at N(0, 1 / in)."""
        super().reset_parameters()
        if self._letters.is_float_linear:
            return
        deviation = 1.0 / math.sqrt(max(self.in_channels_l, 1))
        for parameter in (self.weight, self.root):
            if parameter is not None:
                torch.nn.init.normal_(parameter, std=deviation)
        if self.comp is not None:
            torch.nn.init.normal_(self.comp, std=1.0 / math.sqrt(max(self.comp.size(1), 1)))

    def forward(self, x: Any, edge_index: Any, edge_type: Tensor | None = None) -> Tensor:
        """Apply the layer.

        Args:
            x: ``[N, in_channels]`` floats, packed or not, int64 ``[N]`` rows of the weights, None
                for all of them, or the pair of sources and destinations.
            edge_index: ``[2, E]`` edge index, or a transposed ``torch_sparse.SparseTensor`` whose
                values are the types; in binary precisions also the ``BitAdjacency`` that
                ``relation_adjacency`` makes.
            edge_type: int64 ``[E]``, 0 to ``num_relations - 1``; types without edges add nothing.

        Returns:
            ``[N, out_channels]`` floats.

        Raises:
            TypeError: ``x`` is neither a tensor nor a pair of tensors.
            ValueError: the width of ``x``, the edges or their types do not fit.
        """
        self._meet_model()
        x = unpacked(x)
        sides: Any = x if isinstance(x, tuple) else (x,)
        has_features = all(isinstance(side, Tensor) and side.is_floating_point() for side in sides)
        if not self._letters.is_float and has_features:
            return self._of_relations(as_pair(type(self).__name__, x), edge_index, edge_type)
        if has_features and self.dropout > 0.0:
            x = dropped(x, self.dropout, self.training)
        out: Tensor = super().forward(x, edge_index, edge_type)
        return out if self._letters.is_float else self._output(out)

    def _of_relations(self, pair: Any, edges: Any, edge_type: Tensor | None) -> Tensor:
        """The sum over the relations, and the node's own product."""
        source, node = pair
        bits, linear, root = self.input_bits, *self._maps
        assert bits is not None
        u = self._prepare(source)
        shares = root is not None and self.root_bits is None
        self._look(u, bits, linear, *((root,) if shares and node is source else ()))
        seen = self._see(u, bits, self.dropout)
        if self.training:
            change = give_to_decay if isinstance(seen.operand, InputRows) else spare_from_decay
            for parameter in self._latent_weights():
                change(parameter)
        z = self._relation_product(seen, bits, linear).view(-1, self.out_channels)
        s = aggregate(z, self._adjacency(edges, edge_type, node.size(0), source.size(0)), self.bias)
        if root is None:
            return self._output(s)
        if node is not source:
            u, bits = self._prepare(node), self.root_bits or bits
            self._look(u, bits, root)
            seen = self._see(u, bits, self.dropout)
        return self._output(s + self._bits_product(seen, bits, Part(root, None, is_root=True)))

    def _relation_product(self, seen: SeenInput, bits: InputBits, linear: Any) -> Tensor:
        """The products of all relations side by side."""
        if self.num_blocks is None or isinstance(seen.operand, InputRows):
            return self._bits_product(seen, bits, Part(linear, None))
        halves: Any = self.halves
        first, second = (self._bits_product(seen, bits, Part(half, None)) for half in halves)
        return (first + second) * 0.5

    def _adjacency(
        self, edges: Any, edge_type: Tensor | None, rows: int, sources: int
    ) -> BitAdjacency:
        """All relations side by side."""
        name, shape = type(self).__name__, (rows, sources * self.num_relations)
        if not isinstance(edges, BitAdjacency):
            options = {"relations": self.num_relations, "reduction": self._reduction}
            options["flow"] = self.flow
            try:
                edges = kept_adjacency(
                    relation_adjacency, edges, edge_type, rows, sources, **options
                )
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        if edges.shape != shape:
            raise ValueError(
                f"{name}: the adjacency must be {shape[0]} x {shape[1]}, got "
                f"{edges.shape[0]} x {edges.shape[1]}"
            )
        found: BitAdjacency = edges
        return found


class FastRGCNConv(RGCNConv, torch_geometric.nn.FastRGCNConv):
    """PyG's ``FastRGCNConv`` with a precision: as :class:`RGCNConv`, whose binary form it has."""


def why_not_binary(layer: Any) -> str | None:
    """Reason why a layer of PyG has no binary form, or None."""
    plain = (torch_geometric.nn.SumAggregation, torch_geometric.nn.MeanAggregation)
    if not isinstance(layer.aggr_module, plain):
        return f"aggr={layer.aggr!r} is neither a sum nor a mean"
    return None
