"""GINConv with a binary sum and a binary MLP: PyG's layer plus a precision."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.typing import OptPairTensor

from bitgnn.nn.binary_layer import BinaryLayer
from bitgnn.nn.linear import KINDS, adopt, with_binary_maps
from bitgnn.nn.precision import NAMES, LayerPrecision, chosen_precision
from bitgnn.nn.sum_linear import SumLinear

FLOAT = LayerPrecision.parse("fp32")


class GINConv(torch_geometric.nn.GINConv):
    r"""PyG's ``GINConv`` whose sum and MLP can be binary.

    * ``"fp32"``: :math:`\mathrm{nn}((1 + \epsilon) x_i + \sum_{j \in N(i)} x_j)`, PyG's own code.
    * ``"bin"`` or ``"full"``: the same on the input's bits, whose sums are integers. The first
      linear map of ``nn`` becomes a :class:`~bitgnn.nn.sum_linear.SumLinear` and is multiplied by
      signs, before the sum where that is less work; the other ones become
      :class:`~bitgnn.nn.Linear`. Dense features are 8-bit rows.

    Source: Xu et al., "How Powerful are Graph Neural Networks?", ICLR 2019.

    Args:
        nn: a linear map, an ``nn.Sequential`` that begins with one, or PyG's ``MLP``, for binary
            precisions, which put their layers into it; any module for ``"fp32"``.
        eps: initial value of epsilon.
        train_eps: train it.
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        dropout: probability of dropping a bit before a product, in training.
        **kwargs: further arguments of PyG's ``MessagePassing``.

    Raises:
        ValueError: unknown precision, or a binary one with another aggregation than a sum or an
            ``nn`` that begins with something else.
    """

    propagate_type = {"x": OptPairTensor}  # noqa: RUF012
    nn: Any
    _input_dropout = 0.0
    __prepare_scriptable__: Any = BinaryLayer.__prepare_scriptable__
    root_weight = True
    """False leaves out the node's own features, as a pair without destinations does."""

    def __init__(
        self,
        nn: torch.nn.Module,
        eps: float = 0.0,
        train_eps: bool = False,
        precision: str | LayerPrecision | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(nn, eps, train_eps, **kwargs)
        self.precision = name_of("GINConv", precision)
        if self.precision != "fp32":
            why = why_not_binary(self)
            if why is not None:
                raise ValueError(f"GINConv: precision must be 'fp32', since {why}")
            self._make_binary(dropout)

    def _make_binary(self, dropout: float) -> None:
        """Put binary maps into the MLP, with the weights of its own."""
        options: Any = {"precision": self.precision, "dropout": dropout}
        first: Any = first_linear(self.nn)
        outputs, inputs = first.weight.shape
        options |= {"flow": self.flow, "node_dim": self.node_dim}
        made = adopt(SumLinear(inputs, outputs, first.bias is not None, **options), first)
        if self.nn is first:
            self.nn = made
        else:
            put_first(self.nn, first, made)
            with_binary_maps(self.nn, self.precision, dropout)

    @property
    def first(self) -> SumLinear | None:
        """The map before or after which neighbours are summed; None in floats."""
        return next((m for m in self.nn.modules() if isinstance(m, SumLinear)), None)

    @property
    def letters(self) -> LayerPrecision:
        """Precision in use of the first map."""
        first = self.first
        return FLOAT if first is None else first.letters

    def forward(
        self, x: Any, edge_index: Any, size: tuple[int | None, int | None] | None = None
    ) -> Tensor:
        """Apply the layer.

        Args:
            x: ``[N, in_channels]`` floats, packed or not, or the pair of those of sources and of
                destinations (or None) of a bipartite graph.
            edge_index: ``[2, E]`` edge index, transposed sparse adjacency, whose values do not
                count, as in PyG, or in binary precisions a ``BitAdjacency``.
            size: nodes of both sides of a bipartite graph.

        Returns:
            What ``nn`` returns.

        Raises:
            TypeError: in binary precisions ``x`` holds no floats.
            ValueError: in binary precisions the width of ``x`` or the graph does not fit.
        """
        first = self.first
        if first is None:
            out: Tensor = super().forward(x, edge_index, size)
            return out
        first.held = (edge_index, self.eps if self.root_weight else None, size)
        try:
            out = self.nn(x)
        finally:
            first.held = ()
        return out


def name_of(layer: str, precision: str | LayerPrecision | None) -> str:
    """The name of a precision of a layer that is made of others; ValueError for letters."""
    precision = chosen_precision(precision)
    if isinstance(precision, LayerPrecision) and precision.is_float:
        precision = "fp32"
    if precision not in ("fp32", *NAMES):
        raise ValueError(
            f"{layer}: precision must be 'fp32', 'full' or 'bin', got {str(precision)!r}"
        )
    return str(precision)


def first_linear(module: nn.Module) -> nn.Module | None:
    """The linear map that a module applies to its input before anything else, if it has one."""
    if isinstance(module, KINDS):
        return module
    if type(module) is nn.Sequential and len(module):
        return first_linear(module[0])
    if type(module) is torch_geometric.nn.MLP:
        maps: Any = module.lins
        return first_linear(maps[0]) if len(maps) else None
    return None


def put_first(module: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put a map in the place of another one inside of a module."""
    for parent in module.modules():
        for name, child in parent._modules.items():
            if child is old:
                parent._modules[name] = new


def why_not_binary(layer: Any) -> str | None:
    """Reason why a layer of PyG has no binary form, or None."""
    if type(layer.aggr_module) is not torch_geometric.nn.SumAggregation:
        return f"aggr={layer.aggr!r} is no sum"
    first: Any = first_linear(layer.nn)
    if first is None:
        return "its nn does not begin with a linear map"
    if torch_geometric.nn.dense.linear.is_uninitialized_parameter(first.weight):
        return "its nn has no weight yet; run the model once before"
    return None
