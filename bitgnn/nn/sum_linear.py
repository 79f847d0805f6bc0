"""SumLinear: a binary linear map of a node's features plus the sum of its neighbours'."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.typing import OptPairTensor, SparseTensor

from bitgnn.nn.binary_product import on_rows
from bitgnn.nn.inputs.float_inputs import as_pair, float_features
from bitgnn.nn.inputs.looked_up_products import Part
from bitgnn.nn.neighbour_layer import NeighbourLayer, _Graph
from bitgnn.nn.norms import ProductNorm
from bitgnn.nn.precision import NAMES, Form, LayerPrecision, Role, named_sum_forms
from bitgnn.quantize import binary_sign


class SumForms:
    """Mixin of layers that sum integers: a norm follows where a binary layer reads the sum."""

    _letters: Any
    output_norm: Any
    _mark: Any
    _with_all_parameters: Any

    def _named_forms(self, precision: str | LayerPrecision) -> dict[Form, LayerPrecision] | None:
        return named_sum_forms(precision)

    def _output(self, out: Tensor) -> Tensor:
        letters = self._letters
        if letters.output_norm is not None:
            out = on_rows(self.output_norm, out)
        if letters.bspmm[2] == "B":
            out = binary_sign(out, letters.surrogate)
        found: Tensor = self._mark(self._with_all_parameters(out))
        return found


class SumLinear(SumForms, NeighbourLayer, torch_geometric.nn.MessagePassing):
    r""":math:`\mathrm{norm}\big(\sum_{j \in N(i)} Y_j + b + (1 + \epsilon) Y_i\big)`.

    :math:`Y = B(X)\,\mathrm{sgn}(W)^\top` is a product of looked-up bits, or of 8-bit rows, so that
    the sums are those of integers times binary weights, in the order with less work. The norm is
    there where a binary layer reads the result, else a learnt gain.

    It takes the place of the first linear map of an MLP after a sum of neighbours, with its
    parameters ``weight`` and ``bias``; :class:`~bitgnn.nn.GINConv` calls the MLP on the features
    and lends the graph meanwhile.

    Args:
        in_channels: size of each input sample.
        out_channels: size of each output sample.
        bias: add a bias.
        precision: ``"bin"`` or ``"full"``, which mean the same here.
        dropout: of bits before the product, in training.
        role: as in :class:`~bitgnn.nn.SAGEConv`.
        **kwargs: of PyG's ``MessagePassing``; the aggregation is a sum.

    Raises:
        ValueError: unknown precision or role, or ``dropout`` outside [0, 1).
    """

    propagate_type = {"x": OptPairTensor}  # noqa: RUF012
    held: tuple[Any, ...] = ()
    """Graph, epsilon and sizes, lent by the layer around while it calls."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        bias: bool = True,
        precision: str = "bin",
        dropout: float = 0.0,
        role: Role | None = None,
        **kwargs: Any,
    ) -> None:
        if precision not in NAMES:
            raise ValueError(f"SumLinear: precision must be one of {NAMES}, got {precision!r}")
        self._set_precision(precision, dropout, role)
        super().__init__(aggr="add", **kwargs)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        nn.init.normal_(self.weight, std=1.0 / math.sqrt(max(in_channels, 1)))
        self._factor: Tensor | float = 1.0
        self._complete(in_channels, out_channels)
        self.output_norm = ProductNorm(out_channels)

    def _products(self) -> Iterable[Any]:
        return (self,)

    @property
    def root_gain(self) -> Tensor | None:
        """The gain of the node's own product: the neighbours' times 1 + epsilon."""
        gain = self.output_gain
        return None if gain is None else self._factor * gain

    def hold_factor(self, eps: Tensor) -> None:
        """Store 1 + epsilon, the factor of the node's own product."""
        self._factor = 1 + eps.detach()

    def given(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a call and those lent by the layer around."""
        return (*args, *self.held) if len(args) == 1 else args

    def forward(
        self,
        x: Any,
        edge_index: Any = None,
        eps: Tensor | None = None,
        size: tuple[int | None, int | None] | None = None,
    ) -> Tensor:
        """Apply the layer.

        Args:
            x: ``[N, in_channels]`` floats, or the pair of those of sources and destinations.
            edge_index: the graph in any form; the one lent where it is left out.
            eps: ``[1]``; None leaves out the node's own product.
            size: nodes of both sides of a bipartite graph.

        Returns:
            ``[N, out_channels]`` floats.

        Raises:
            TypeError: ``x`` is neither a tensor nor a pair of tensors, or holds no floats.
            ValueError: the width of ``x`` or the graph does not fit, or there is no graph.
        """
        if edge_index is None:
            if not self.held:
                raise ValueError("SumLinear: edge_index must be given outside of a graph layer")
            edge_index, eps, size = self.held
        self._meet_model()
        pair = as_pair("SumLinear", float_features("SumLinear", x))
        if isinstance(edge_index, SparseTensor):
            edge_index = edge_index.set_value(None, layout=None)
        return self._sum(pair, edge_index, eps, size)

    def _sum(
        self, pair: Any, edges: Any, eps: Tensor | None, size: tuple[int | None, int | None] | None
    ) -> Tensor:
        self._needs_edges(edges)
        source, node = pair
        if source is None:
            raise ValueError("SumLinear: x must hold the features of the sources")
        graph = _Graph(edges, None, self._sizes(pair, edges, size))
        u, bits = self._prepare(source), self.input_bits
        assert bits is not None
        linear: Any = self
        self._look(u, bits, linear)
        seen = self._see(u, bits, self.dropout)
        integers = None if self._shows_messages else self._integers(u, linear)
        alone = self._sums_alone(integers)
        part = Part(linear, None)
        z = None if alone else self._bits_product(seen, bits, part)
        s = self._aggregate_hidden(z, graph, self.bias, integers)
        s = s.to(u.dtype) if alone else s
        if node is None or eps is None:
            return self._output(s)
        if node is not source:
            seen = self._see(self._prepare(node), bits, self.dropout)
        if self.training:
            own = z if node is source else self._bits_product(seen, bits, part)
            assert own is not None
            return self._output(s + (1 + eps) * own)
        self.hold_factor(eps)
        return self._output(s + self._bits_product(seen, bits, part._replace(is_root=True)))

    def __repr__(self) -> str:
        sizes = f"{self.in_channels}, {self.out_channels}"
        return f"{type(self).__name__}({sizes}, bias={self.bias is not None})"
