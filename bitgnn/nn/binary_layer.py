"""What binary layers share: precision, norms, the dense product, the aggregation, the output."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from bitgnn.bits import BitAdjacency
from bitgnn.nn.adjacency import Reduction
from bitgnn.nn.aggregate import aggregate
from bitgnn.nn.precision import InputNorm, LayerPrecision
from bitgnn.nn.scripting import as_pyg_layer
from bitgnn.nn.standardize import NodeStandardize
from bitgnn.quantize import binary_linear, binary_sign, fast_dropout

__all__ = ["BinaryLayer", "BinaryProduct", "on_rows"]

# Sums of neighbours' signs spread over several units: a window of 1 would stop most gradients
# (Cora: 54 % accuracy with 1, 79 % with 4, the same with 16).
OUTPUT_WINDOW = 4.0
# Relative error from which on factors in place of edge weights are worth a warning.
FACTORIZATION_WARNING = 1e-3

_MESSAGE_HOOKS = (
    "_propagate_forward_pre_hooks",
    "_propagate_forward_hooks",
    "_message_forward_pre_hooks",
    "_message_forward_hooks",
    "_aggregate_forward_pre_hooks",
    "_aggregate_forward_hooks",
    "_message_and_aggregate_forward_pre_hooks",
    "_message_and_aggregate_forward_hooks",
)
_MESSAGE_METHODS = ("message", "aggregate", "message_and_aggregate", "update")


class BinaryProduct:
    """Mixin of every layer with a binary dense product, in front of one of PyG's layers.

    Attributes:
        letters: the layer's precision with its options.
        dropout: probability of dropping an activation in front of the dense product in training;
            in binary forms it acts on the binarised activation.
        input_norm: module on the layer's input, or None.
        hidden_norm: module behind the dense product, or None.
        output_norm: module in front of the output, or None.
    """

    letters: LayerPrecision
    dropout: float
    training: bool
    input_norm: nn.Module | None
    hidden_norm: nn.Module | None
    output_norm: nn.Module | None

    def _set_precision(self, letters: LayerPrecision, dropout: float) -> None:
        """Settle what PyG's constructor needs when it calls ``reset_parameters``."""
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"{type(self).__name__}: dropout must be in [0, 1), got {dropout}")
        self.letters = letters
        self.dropout = dropout

    def _add_norms(self, in_channels: int | tuple[int, int], out_channels: int) -> None:
        """Create the norms that the precision asks for."""
        kinds = self.letters
        self.input_norm = _input_norm(type(self).__name__, kinds.input_norm, in_channels)
        self.hidden_norm = None if kinds.hidden_norm is None else nn.BatchNorm1d(out_channels)
        self.output_norm = None if kinds.output_norm is None else nn.BatchNorm1d(out_channels)

    @property
    def precision(self) -> str:
        """Name or letters of the layer's precision, without its options."""
        return str(self.letters)

    def _products(self) -> Iterable[torch_geometric.nn.Linear]:
        """The linear maps whose weights take part in binary products."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Draw the weights anew and reset the norms; binary weights start at N(0, 1 / in)."""
        super().reset_parameters()  # type: ignore[misc]
        for linear in self._products():
            self._reset_product(linear)
        for name in ("input_norm", "hidden_norm", "output_norm"):
            # PyG's constructors call this before the norms exist.
            norm = getattr(self, name, None)
            if isinstance(norm, nn.BatchNorm1d):
                norm.reset_parameters()

    def _reset_product(self, linear: torch_geometric.nn.Linear) -> None:
        """Bi-GCN's initialisation; PyG's stays where the product is a float one."""
        if self.letters.is_float_linear or is_uninitialized_parameter(linear.weight):
            return
        nn.init.normal_(linear.weight, std=1.0 / math.sqrt(max(linear.weight.size(1), 1)))
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)

    def _ready(self, linear: torch_geometric.nn.Linear, x: Tensor) -> Tensor:
        """The weight of a linear map, made now if its width was left to the first input."""
        if is_uninitialized_parameter(linear.weight):
            linear.initialize_parameters(linear, (x,))
            self._reset_product(linear)
        weight: Tensor = linear.weight
        if x.dim() == 0 or x.size(-1) != weight.size(1):
            raise ValueError(
                f"{type(self).__name__}: x must be [N, {weight.size(1)}], got {list(x.shape)}"
            )
        return weight

    def _prepare(self, x: Tensor) -> Tensor:
        """What the sign sees: the input behind norm and hardtanh."""
        if x.layout != torch.strided:
            # A missing entry is a 0, whose sign is +1: the signs are dense.
            x = x.to_dense()
        if self.input_norm is not None:
            x = on_rows(self.input_norm, x)
        return functional.hardtanh(x) if self.letters.hardtanh else x

    def _product(self, u: Tensor, weight: Tensor, sign_output: bool | int = False) -> Tensor:
        """The dense product ``[*, M]`` of prepared activations ``[*, K]`` and ``[M, K]``."""
        letters = self.letters
        if letters.is_float_linear:
            return functional.linear(fast_dropout(u, self.dropout, self.training), weight)
        out = binary_linear(
            u if u.dim() == 2 else u.reshape(-1, u.size(-1)),
            weight,
            x_scale=letters.bmm[0] == "F",
            binary_weight=letters.bmm[1] == "B",
            sign_output=sign_output,
            dropout=self.dropout,
            training=self.training,
            surrogate=letters.surrogate,
            weight_gradient=letters.weight_gradient,
        )
        return out if u.dim() == 2 else out.view(*u.shape[:-1], -1)

    @property
    def _signs_product(self) -> bool:
        """Whether the sign is taken of the product itself, not of what a norm makes of it."""
        return self.letters.bmm[2] == "B" and self.hidden_norm is None

    def _hidden(self, z: Tensor) -> Tensor:
        """The product behind its norm, on the way to the next product."""
        if self.hidden_norm is None:
            return z
        z = on_rows(self.hidden_norm, z)
        return binary_sign(z, self.letters.surrogate) if self.letters.bmm[2] == "B" else z


class BinaryLayer(BinaryProduct):
    """Mixin of the graph layers: aggregation over bits, or over messages where PyG needs them."""

    aggr: Any
    aggr_module: Any
    explain: bool | None
    flow: str
    node_dim: int

    def _complete(self, in_channels: int | tuple[int, int], out_channels: int) -> None:
        """Add the norms and warn, once, of an aggregation that has no binary form."""
        self._add_norms(in_channels, out_channels)
        if self._aggregates_messages and not self.letters.is_float:
            reason = (
                f"aggr={self.aggr!r} is neither a sum nor a mean"
                if self._reduction is None
                else "its class overrides how messages are made or aggregated"
            )
            warnings.warn(
                f"{type(self).__name__}: {reason}; its dense products stay binary, but PyG "
                "aggregates floats: 32 bits for each feature of each edge, the speed and memory "
                "of full precision",
                UserWarning,
                stacklevel=4,
            )

    @classmethod
    def _pyg_class(cls) -> type:
        """The class of PyG that this one extends."""
        return next(base for base in cls.__mro__ if base.__module__.startswith("torch_geometric."))

    def __prepare_scriptable__(self) -> Any:
        """What ``torch.jit.script`` compiles in place of a float layer."""
        return as_pyg_layer(self, self._pyg_class())

    @property
    def _reduction(self) -> Reduction | None:
        """The aggregation where it is one that a BitAdjacency can do."""
        kind = type(self.aggr_module)
        return "add" if kind is SumAggregation else "mean" if kind is MeanAggregation else None

    @property
    def _aggregates_messages(self) -> bool:
        """Whether only PyG's own message passing can do what this layer asks for."""
        parent = self._pyg_class()
        overridden = any(
            getattr(type(self), name) is not getattr(parent, name) for name in _MESSAGE_METHODS
        )
        return overridden or self._reduction is None

    @property
    def _shows_messages(self) -> bool:
        """Whether somebody looks at single messages: an explainer, or a hook."""
        return bool(self.explain) or any(getattr(self, hooks) for hooks in _MESSAGE_HOOKS)

    def _needs_edges(self, graph: Any) -> None:
        """Refuse a ready pattern where PyG's message passing runs."""
        name = type(self).__name__
        if isinstance(graph, BitAdjacency):
            if self._aggregates_messages:
                raise ValueError(
                    f"{name}: aggr={self.aggr!r} aggregates messages, got a BitAdjacency; "
                    "pass an edge index or a sparse tensor"
                )
            if self.letters.bspmm[1] == "F" and not self.letters.is_float:
                raise ValueError(
                    f"{name}: precision {self.precision!r} aggregates with float edge weights, "
                    "got a BitAdjacency; pass an edge index or a sparse tensor"
                )
        if self._shows_messages and not (
            isinstance(graph, Tensor) and graph.layout == torch.strided
        ):
            raise ValueError(
                f"{name}: explain mode and message hooks need an edge index in precision "
                f"{self.precision!r}, got {type(graph).__name__}"
            )

    def _warn_of_factors(self, adjacency: BitAdjacency) -> None:
        """Say once when the edge weights of a graph are not what the factors make of them."""
        error = adjacency.factorization_error
        if error > FACTORIZATION_WARNING and not self.__dict__.get("_warned_of_factors"):
            self.__dict__["_warned_of_factors"] = True
            warnings.warn(
                f"{type(self).__name__}: the edge weights are not of rank one; their row means "
                f"serve instead (relative error {error:.2g}). Letters with a float adjacency, "
                "such as 'FBF+FFF', use them exactly",
                UserWarning,
                stacklevel=4,
            )

    @property
    def _use_col(self) -> bool:
        """Whether the column factor acts: on bits it cannot."""
        return self.letters.bspmm[0] == "F"

    def _aggregate_pattern(self, z: Tensor, adjacency: BitAdjacency, bias: Tensor | None) -> Tensor:
        """``row * (pattern (col * z)) + bias`` along the dimension of nodes."""
        if z.dim() == 2 and self.node_dim in (0, -2):
            return aggregate(z, adjacency, bias, use_col=self._use_col)
        by_node = z.movedim(self.node_dim, 0)
        out = aggregate(by_node.flatten(1), adjacency, use_col=self._use_col)
        out = out.view(-1, *by_node.shape[1:]).movedim(0, self.node_dim)
        return out if bias is None else out + bias

    def _edge_factors(self, edge_index: Tensor, adjacency: BitAdjacency) -> Tensor:
        """The factors of an adjacency as weights of its edges in PyG's order."""
        toward, source = (1, 0) if self.flow == "source_to_target" else (0, 1)
        weight = torch.ones(edge_index.size(1), device=edge_index.device)
        row = adjacency.row
        if self._reduction == "mean":
            # PyG's mean divides by the number of edges itself.
            degree = torch.diff(adjacency.rowptr).float()
            row = degree if row is None else row * degree
        if row is not None:
            weight = weight * row[edge_index[toward]]
        if adjacency.col is not None and self._use_col:
            weight = weight * adjacency.col[edge_index[source]]
        return weight

    def _output(self, out: Tensor) -> Tensor:
        """Norm and sign of the layer's output."""
        if self.output_norm is not None:
            out = on_rows(self.output_norm, out)
        if self.letters.bspmm[2] == "B":
            out = binary_sign(out, self.letters.surrogate, OUTPUT_WINDOW)
        return out


def _input_norm(
    layer: str, kind: InputNorm | None, in_channels: int | tuple[int, int]
) -> nn.Module | None:
    """The norm of a layer's input; a batch norm of unknown width takes that of the first input."""
    if kind is None:
        return None
    if kind == "standardize":
        return NodeStandardize()
    widths = {in_channels} if isinstance(in_channels, int) else set(in_channels)
    if len(widths) > 1:
        raise ValueError(
            f"{layer}: input_norm='batch' needs sources and destinations of one width, "
            f"got in_channels {in_channels}"
        )
    width = widths.pop()
    if width > 0:
        return nn.BatchNorm1d(width, affine=False)
    return nn.LazyBatchNorm1d(affine=False)


def on_rows(module: nn.Module, x: Tensor) -> Tensor:
    """A module for matrices ``[N, K]`` on ``[*, K]``."""
    if x.dim() == 2:
        out: Tensor = module(x)
        return out
    rows: Tensor = module(x.reshape(-1, x.size(-1)))
    return rows.view(x.shape)
