"""SGConv, SSGConv, TAGConv and ChebConv with binary maps in front of their sums of neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.nn.aggr import SumAggregation
from torch_geometric.typing import OptTensor

from bitgnn.nn.binary_layer import BinaryLayer
from bitgnn.nn.float_inputs import float_features
from bitgnn.nn.gin_conv import FLOAT, name_of
from bitgnn.nn.linear import Linear, adopt
from bitgnn.nn.precision import LayerPrecision
from bitgnn.nn.propagation import neighbour_sums, propagation_graph


class Propagation:
    r"""Mixin of PyG's layers that are polynomials of a normalised adjacency, times linear maps.

    :math:`\sum_k p_k(\hat A)\,x W_k^\top` is computed as the polynomial of the products, by
    Horner's or Clenshaw's rule: every sum has as many columns as the result, where PyG sums the
    input. Products are those of :class:`~bitgnn.nn.Linear`: looked-up bits or 8-bit rows, with a
    norm each before another binary layer, else with a learnt gain. In ``"bin"`` the map whose
    product is summed first hands on signs before another binary layer, so that the first sums are
    those of bits; the column factor does not act on these. Later ones are float sums.
    """

    precision: str
    aggr_module: nn.Module
    flow: str
    node_dim: int
    add_self_loops = False
    normalize = True
    _input_dropout = 0.0
    _pyg_class = BinaryLayer._pyg_class
    __prepare_scriptable__ = BinaryLayer.__prepare_scriptable__

    def _start(self, precision: str | LayerPrecision | None, dropout: float = 0.0) -> None:
        """Make the maps binary unless the precision is ``"fp32"``; the last of a constructor."""
        precision = name_of(type(self).__name__, precision)
        if precision != "fp32":
            why = why_not_binary(self)
            if why is not None:
                name = type(self).__name__
                raise ValueError(f"{name}: precision must be 'fp32', since {why}")
        self.become(precision, dropout)

    def become(self, precision: str, dropout: float) -> None:
        """Take a precision; weights, names and modes stay."""
        self.precision = precision
        if precision == "fp32":
            return
        found = list(_maps(self))
        for parent, name, linear in found:
            outputs, inputs = linear.weight.shape
            has_bias = linear.bias is not None
            made = Linear(inputs, outputs, has_bias, precision=precision, dropout=dropout)
            made.adds_bias = False
            if precision == "bin" and linear is found[-1][2]:
                made.hand_on_signs()
            setattr(parent, name, adopt(made, linear))

    @property
    def is_binary(self) -> bool:
        """True if the maps are binary; a trace then goes through the layer."""
        return self.precision != "fp32"

    @property
    def letters(self) -> LayerPrecision:
        """Precision in use of the map whose product is summed first."""
        if not self.is_binary:
            return FLOAT
        found: Linear = list(_maps(self))[-1][2]
        return found.letters

    def _graph(self, x: Any, edge_index: Any, edge_weight: Any, **options: Any) -> Any:
        return propagation_graph(
            x,
            edge_index,
            edge_weight,
            normalize=self.normalize,
            add_self_loops=self.add_self_loops,
            flow=self.flow,
            **options,
        )


def _maps(layer: Any) -> Iterator[tuple[Any, str, Any]]:
    """Parents, names and maps; the last one is that of the highest power."""
    lins = getattr(layer, "lins", None)
    if lins is None:
        yield layer, "lin", layer.lin
    else:
        for place, linear in enumerate(lins):
            yield lins, str(place), linear


def why_not_binary(layer: Any) -> str | None:
    """Reason why a layer of PyG has no binary form, or None."""
    if type(layer.aggr_module) is not SumAggregation:
        return f"aggr={layer.aggr!r} is no sum"
    if layer.node_dim not in (-2, 0):
        return f"node_dim={layer.node_dim} is not that of rows"
    if getattr(layer, "cached", False):
        return "cached=True keeps sums of floats of its first input"
    if getattr(layer, "normalization", "sym") != "sym":
        return f"normalization={layer.normalization!r} is not 'sym'"
    return None


class SGConv(Propagation, torch_geometric.nn.SGConv):
    r"""PyG's ``SGConv`` whose product can be binary.

    * ``"fp32"``: :math:`\hat A^K X W^\top + b`, PyG's own code.
    * ``"bin"`` or ``"full"``: :math:`\hat A^K Y + b` with the product :math:`Y` of
      :class:`~bitgnn.nn.Linear`, whose signs are summed first in ``"bin"`` before another binary
      layer.

    Source: Wu et al., "Simplifying Graph Convolutional Networks", ICML 2019.

    Args:
        in_channels: size of each input sample.
        out_channels: size of each output sample.
        K: number of hops.
        cached: as in PyG, for ``"fp32"``.
        add_self_loops: as in PyG.
        bias: as in PyG.
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        dropout: probability of dropping a bit before a product, in training.
        **kwargs: further arguments of PyG's ``MessagePassing``; binary forms sum.

    Raises:
        ValueError: unknown precision, or a binary one with an option that has none.
    """

    propagate_type = {"x": Tensor, "edge_weight": OptTensor}  # noqa: RUF012

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        K: int = 1,
        cached: bool = False,
        add_self_loops: bool = True,
        bias: bool = True,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, K, cached, add_self_loops, bias, **kwargs)
        self._start(precision, dropout)

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Apply the layer.

        Args:
            x: ``[N, in_channels]`` floats, packed or not.
            edge_index: ``[2, E]`` edge index, transposed sparse adjacency, or in binary precisions
                a ``BitAdjacency``, used as it is.
            edge_weight: ``[E]`` floats, beside an edge index.

        Returns:
            ``[N, out_channels]`` floats.

        Raises:
            TypeError: in binary precisions ``x`` holds no floats.
            ValueError: in binary precisions the width of ``x`` or the graph does not fit.
        """
        out: Any
        if not self.is_binary:
            out = super().forward(x, edge_index, edge_weight)
            return out
        out = self.lin(float_features("SGConv", x))
        graph = self._graph(out, edge_index, edge_weight)
        for hop in range(self.K):
            out = neighbour_sums(out, graph, hop == 0 and self.lin.gives_signs)
        return out if self.lin.bias is None else out + self.lin.bias


class SSGConv(Propagation, torch_geometric.nn.SSGConv):
    r"""PyG's ``SSGConv`` whose product can be binary.

    :math:`\alpha Y + \frac{1 - \alpha}{K} \sum_{k=1}^K \hat A^k Y + b`, with :math:`Y` and the
    precisions of :class:`SGConv`.

    Source: Zhu and Koniusz, "Simple Spectral Graph Convolution", ICLR 2021.

    Args:
        in_channels: size of each input sample.
        out_channels: size of each output sample.
        alpha: share of the node itself.
        K: number of hops.
        cached: as in PyG, for ``"fp32"``.
        add_self_loops: as in PyG.
        bias: as in PyG.
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        dropout: probability of dropping a bit before a product, in training.
        **kwargs: further arguments of PyG's ``MessagePassing``; binary forms sum.

    Raises:
        ValueError: unknown precision, or a binary one with an option that has none.
    """

    propagate_type = {"x": Tensor, "edge_weight": OptTensor}  # noqa: RUF012

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        alpha: float,
        K: int = 1,
        cached: bool = False,
        add_self_loops: bool = True,
        bias: bool = True,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        own = in_channels, out_channels, alpha, K, cached, add_self_loops, bias
        super().__init__(*own, **kwargs)
        self._start(precision, dropout)

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Apply the layer: as :meth:`SGConv.forward`."""
        out: Any
        if not self.is_binary:
            out = super().forward(x, edge_index, edge_weight)
            return out
        y = self.lin(float_features("SSGConv", x))
        graph, out = self._graph(y, edge_index, edge_weight), y * self.alpha
        for hop in range(self.K):
            y = neighbour_sums(y, graph, hop == 0 and self.lin.gives_signs)
            out = out + (1 - self.alpha) / self.K * y
        return out if self.lin.bias is None else out + self.lin.bias


class TAGConv(Propagation, torch_geometric.nn.TAGConv):
    r"""PyG's ``TAGConv`` whose products can be binary.

    * ``"fp32"``: :math:`\sum_{k=0}^K \hat A^k X W_k^\top + b`, PyG's own code.
    * ``"bin"`` or ``"full"``: :math:`Y_0 + \hat A (Y_1 + \hat A (\dots + \hat A Y_K)) + b` with
      products :math:`Y_k` of :class:`~bitgnn.nn.Linear`. In ``"bin"`` :math:`Y_K` are signs before
      another binary layer.

    Source: Du et al., "Topology Adaptive Graph Convolutional Networks", 2017.

    Args:
        in_channels: size of each input sample.
        out_channels: size of each output sample.
        K: number of hops.
        bias: as in PyG.
        normalize: as in PyG.
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        dropout: probability of dropping a bit before a product, in training.
        **kwargs: further arguments of PyG's ``MessagePassing``; binary forms sum.

    Raises:
        ValueError: unknown precision, or a binary one with an option that has none.
    """

    propagate_type = {"x": Tensor, "edge_weight": OptTensor}  # noqa: RUF012

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        K: int = 3,
        bias: bool = True,
        normalize: bool = True,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, K, bias, normalize, **kwargs)
        self._start(precision, dropout)

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Apply the layer: as :meth:`SGConv.forward`."""
        out: Any
        if not self.is_binary:
            out = super().forward(x, edge_index, edge_weight)
            return out
        *others, last = self.lins
        x = float_features("TAGConv", x)
        out, are_signs = last(x), last.gives_signs
        graph = self._graph(out, edge_index, edge_weight)
        for linear in reversed(others):
            out = neighbour_sums(out, graph, are_signs) + linear(x)
            are_signs = False
        return out if self.bias is None else out + self.bias


class ChebConv(Propagation, torch_geometric.nn.ChebConv):
    r"""PyG's ``ChebConv`` whose products can be binary.

    * ``"fp32"``: :math:`\sum_{k=0}^{K-1} T_k(\hat L) X W_k^\top + b` with Chebyshev's polynomials
      :math:`T_k`, PyG's own code.
    * ``"bin"`` or ``"full"``: the same of products :math:`Y_k` of :class:`~bitgnn.nn.Linear` by
      Clenshaw's recurrence :math:`b_k = Y_k + 2 \hat L b_{k+1} - b_{k+2}`, for ``normalization``
      ``"sym"``. In ``"bin"`` :math:`Y_{K-1}` are signs before another binary layer.

    Source: Defferrard et al., "Convolutional Neural Networks on Graphs with Fast Localized
    Spectral Filtering", NeurIPS 2016.

    Args:
        in_channels: size of each input sample.
        out_channels: size of each output sample.
        K: number of polynomials.
        normalization: as in PyG; ``"sym"`` for binary precisions.
        bias: as in PyG.
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        dropout: probability of dropping a bit before a product, in training.
        **kwargs: further arguments of PyG's ``MessagePassing``; binary forms sum.

    Raises:
        ValueError: unknown precision, or a binary one with an option that has none.
    """

    propagate_type = {"x": Tensor, "norm": Tensor}  # noqa: RUF012

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        K: int,
        normalization: str | None = "sym",
        bias: bool = True,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, K, normalization, bias, **kwargs)
        self._start(precision, dropout)

    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        lambda_max: Any = None,
    ) -> Tensor:
        """Apply the layer: as :meth:`SGConv.forward`, on an edge index.

        Args:
            x: features of the nodes.
            edge_index: ``[2, E]`` edge index; or a ``BitAdjacency`` in place of
                :math:`D^{-1/2} A D^{-1/2}` without self loops.
            edge_weight: ``[E]`` floats.
            batch: ``[N]`` graph of each node, beside several ``lambda_max``.
            lambda_max: largest eigenvalue of the Laplacian, or one for each graph; 2 if None.
        """
        out: Any
        if not self.is_binary:
            out = super().forward(x, edge_index, edge_weight, batch, lambda_max)
            return out
        *others, last = self.lins
        x = float_features("ChebConv", x)
        out, before, are_signs = last(x), None, last.gives_signs
        graph = self._graph(out, edge_index, edge_weight, kind="laplacian")
        for place in reversed(range(len(others))):
            # L = (2 / lambda) (1 - A) - 1
            turned = neighbour_sums(out, graph, are_signs)
            are_signs, factor = False, 2.0 if place else 1.0
            if lambda_max is None:
                hop = -factor * turned
            else:
                scale = _per_node(2.0 / lambda_max, batch)
                hop = factor * (scale * (out - turned) - out)
            hop = others[place](x) + hop
            out, before = (hop if before is None else hop - before), out
        return out if self.bias is None else out + self.bias


def _per_node(scale: Any, batch: Tensor | None) -> Any:
    """A number, or that of each node's graph as a column."""
    if batch is None or not isinstance(scale, Tensor) or scale.numel() == 1:
        return scale
    return scale[batch].unsqueeze(1)


KINDS: dict[type[nn.Module], type[Any]] = {
    kind.__bases__[1]: kind for kind in (SGConv, SSGConv, TAGConv, ChebConv)
}
"""Binary classes by PyG's."""


def kind_of(layer: nn.Module) -> type[Any] | None:
    """The class here of a layer of PyG or of this package; None for others."""
    return next((own for kind, own in KINDS.items() if isinstance(layer, kind)), None)
