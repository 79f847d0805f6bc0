"""Base of SGConv, SSGConv, TAGConv and ChebConv: binary maps before sums of neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from torch import nn
from torch_geometric.nn.aggr import SumAggregation

from bitgnn.nn.binary_layer import BinaryLayer, shows_messages
from bitgnn.nn.gin_conv import FLOAT, name_of
from bitgnn.nn.linear import Linear, adopt
from bitgnn.nn.precision import LayerPrecision
from bitgnn.nn.propagation.reductions import propagation_graph


class Propagation:
    r"""Mixin of PyG's layers that are polynomials of a normalised adjacency, times linear maps.

    :math:`\sum_k p_k(\hat A)\,x W_k^\top` is computed as the polynomial of the products, by
    Horner's or Clenshaw's rule: every sum has as many columns as the result, where PyG sums the
    input. Products are those of :class:`~bitgnn.nn.Linear`: looked-up bits or 8-bit rows, with a
    norm each before another binary layer, else with a learnt gain. In ``"bin"`` the map whose
    product is summed first hands on signs before another binary layer, so that the first sums are
    those of bits; the column factor does not act on these. Later ones are float sums.
    """

    kinds: ClassVar[dict[type[Any], type[Any]]] = {}
    """Classes here by PyG's."""
    precision: str
    aggr_module: nn.Module
    flow: str
    node_dim: int
    add_self_loops = False
    normalize = True
    _input_dropout = 0.0
    __prepare_scriptable__: Any = BinaryLayer.__prepare_scriptable__

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__bases__[0] is Propagation:  # not a class of the user on one of them
            Propagation.kinds[cls.__bases__[1]] = cls

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
        *_, last = (None, *(linear for _, _, linear in _maps(self)))
        return FLOAT if last is None or not self.is_binary else last.letters

    def _graph(self, x: Any, edge_index: Any, edge_weight: Any, **options: Any) -> Any:
        layer: Any = self
        if shows_messages(layer):
            raise ValueError(
                f"{type(self).__name__}: precision must be 'fp32' for explain mode and message "
                f"hooks, since sums of products have no messages; got {self.precision!r}"
            )
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
    if hasattr(layer, "lin"):
        yield layer, "lin", layer.lin
    for place, linear in enumerate(getattr(layer, "lins", ())):
        yield layer.lins, str(place), linear


def why_not_binary(layer: Any) -> str | None:
    """Reason why a layer of PyG has no binary form, or None."""
    if type(layer.aggr_module) is not SumAggregation:
        return f"aggr={layer.aggr!r} is no sum"
    if layer.node_dim not in (-2, 0):
        return f"node_dim={layer.node_dim} is not that of rows"
    if getattr(layer, "cached", False) and hasattr(layer, "lin"):
        return "cached=True keeps sums of floats of its first input"
    if getattr(layer, "normalization", "sym") != "sym":
        return f"normalization={layer.normalization!r} is not 'sym'"
    return None


def has_maps(layer: nn.Module) -> bool:
    """False for a layer of propagation that sums floats alone."""
    return next(_maps(layer), None) is not None


def kind_of(layer: nn.Module) -> type[Any] | None:
    """The class here of a layer of PyG or of this package; None for others."""
    return next((own for kind, own in Propagation.kinds.items() if isinstance(layer, kind)), None)
