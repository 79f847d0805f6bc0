"""Base of the binary graph layers: aggregation over bits or PyG's messages, norm and output."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch_geometric.inspector import Inspector
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from bitgnn.bits import BitAdjacency
from bitgnn.nn.adjacencies import Reduction
from bitgnn.nn.aggregation import IntegerProduct, aggregate, with_value
from bitgnn.nn.binary_product import BinaryProduct, on_rows
from bitgnn.nn.spread import SpreadGraph, SpreadPattern
from bitgnn.quantize import binary_sign

# Sums of neighbours' signs spread over several units: a window of 1 would stop most gradients
# (Cora: 54 % accuracy with 1, 79 % with 4, the same with 16).
OUTPUT_WINDOW = 4.0

MESSAGE_HOOKS = tuple(
    f"_{method}_forward_{hooks}"
    for method in ("propagate", "message", "aggregate", "message_and_aggregate")
    for hooks in ("pre_hooks", "hooks")
)
_MESSAGE_METHODS = ("message", "aggregate", "message_and_aggregate", "update")
_INSPECTED: dict[str, list[int | str]] = {
    "message": [],
    "aggregate": [0, "aggr"],
    "message_and_aggregate": [0],
    "update": [0],
    "edge_update": [],
}
"""Methods of PyG that take arguments by their names, and those that they take otherwise."""


def pyg_class(kind: type) -> type:
    """The class of PyG that a layer's class extends."""
    return next(base for base in kind.__mro__ if base.__module__.startswith("torch_geometric."))


def scriptable_twin(layer: Any) -> Any:
    """A layer of PyG's own class with the parts and settings of a float one, for TorchScript."""
    parent = pyg_class(type(layer))
    twin: Any = object.__new__(parent)
    inspector = Inspector(parent)
    # What PyG's constructor inspects, for the class that the twin has.
    for method, exclude in _INSPECTED.items():
        inspector.inspect_signature(getattr(parent, method), exclude=exclude)
    state = {key: value for key, value in vars(layer).items() if key != "propagate"}
    twin.__setstate__({**state, "inspector": inspector})
    return twin


def shows_messages(layer: Any) -> bool:
    """True if an explainer or a hook reads single messages."""
    return bool(layer.explain) or any(map(vars(layer).get, MESSAGE_HOOKS))


class BinaryLayer(BinaryProduct):
    """Mixin of the graph layers: aggregation over bits, or over messages where PyG needs them."""

    aggr: Any
    aggr_module: Any
    decomposed_layers: int
    explain: bool | None
    flow: str
    node_dim: int
    _has_own_messages: bool

    def _complete(self, in_channels: int | tuple[int, int], out_channels: int) -> None:
        """Add the norms and warn, once, of an aggregation that has no binary form."""
        self._add_norms(in_channels, out_channels)
        kind, parent = type(self), pyg_class(type(self))
        self._has_own_messages = any(
            getattr(kind, name) is not getattr(parent, name) for name in _MESSAGE_METHODS
        )
        if self._aggregates_messages and not self.letters.is_float:
            reason = "its class overrides how messages are made or aggregated"
            if self._reduction is None:
                reason = f"aggr={self.aggr!r} is neither a sum nor a mean"
            warnings.warn(
                f"{kind.__name__}: {reason}; its dense products stay binary, but PyG "
                "aggregates floats: 32 bits for each feature of each edge, the speed and memory "
                "of full precision",
                UserWarning,
                stacklevel=3,
            )

    def __prepare_scriptable__(self) -> Any:
        """The layer of PyG's own class that ``torch.jit.script`` compiles in place of a float one.

        TorchScript compiles the source of ``forward``, which tells precisions apart in ways it has
        no words for. Both share parameters, buffers, submodules and settings.
        """
        kind, parent, name = type(self), pyg_class(type(self)), type(self).__name__
        if not self.letters.is_float:
            raise RuntimeError(
                f"{name}: TorchScript compiles precision 'fp32' alone, got {self.precision!r}; "
                "use torch.compile, or bitgnn.freeze for inference"
            )
        if self._input_dropout > 0.0 and self.training:
            raise RuntimeError(f"{name}: TorchScript has no dropout in layers; call eval() before")
        if parent not in kind.__bases__:
            raise RuntimeError(
                f"{name}: TorchScript does not compile subclasses of bitgnn's layers"
            )
        return scriptable_twin(self)

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Set as PyG does, but keep the generic ``propagate``, which PyG may mistake.

        It may take a parent's generated one, if that class was instantiated first; explainers and
        ``decomposed_layers``, which run the generic one, would then be passed over. And it makes
        one ``propagate`` for a class by what its first object can fuse, where each object asks its
        own ``fuse``: it is made to fuse wherever an object of the class can.
        """
        module: Any = self
        can_fuse, module.fuse = module.fuse, module.inspector.implements("message_and_aggregate")
        try:
            super()._set_jittable_templates(raise_on_error)  # type: ignore[misc]
        finally:
            module.fuse = can_fuse
        cls: Any = type(self)
        generated = [vars(base).get("_jinja_propagate") for base in cls.__mro__[1:]]
        if cls._orig_propagate in generated:
            cls._orig_propagate = vars(MessagePassing).get(
                "_orig_propagate", MessagePassing.propagate
            )

    @property
    def _reduction(self) -> Reduction | None:
        """The aggregation where it is one that a BitAdjacency can do."""
        kind = type(self.aggr_module)
        return "add" if kind is SumAggregation else "mean" if kind is MeanAggregation else None

    @property
    def _aggregates_messages(self) -> bool:
        """True if the layer needs PyG's own message passing."""
        return self._has_own_messages or self._reduction is None

    @property
    def _shows_messages(self) -> bool:
        """True if an explainer or a hook reads single messages."""
        return shows_messages(self)

    def _needs_edges(self, graph: Any) -> None:
        """Refuse a ready pattern where PyG's message passing runs."""
        name = type(self).__name__
        if isinstance(graph, BitAdjacency | SpreadGraph):
            if self._aggregates_messages:
                raise ValueError(
                    f"{name}: aggr={self.aggr!r} aggregates messages, got a "
                    f"{type(graph).__name__}; pass an edge index or a sparse tensor"
                )
            if self._letters.bspmm[1] == "F" and not self._letters.is_float:
                raise ValueError(
                    f"{name}: precision {self.precision!r} aggregates with float edge weights, "
                    f"got a {type(graph).__name__}; pass an edge index or a sparse tensor"
                )
        is_dense = isinstance(graph, Tensor) and graph.layout == torch.strided
        if not is_dense and self._shows_messages:
            raise ValueError(
                f"{name}: explain mode and message hooks need an edge index in precision "
                f"{self.precision!r}, got {type(graph).__name__}"
            )

    @property
    def _use_col(self) -> bool:
        """True if the column factor applies; bits cannot be scaled."""
        return self._letters.bspmm[0] == "F" and self._letters.order == "transform_first"

    def _aggregate_pattern(
        self,
        z: Tensor | None,
        adjacency: BitAdjacency | SpreadPattern,
        bias: Tensor | None,
        integers: IntegerProduct | None,
    ) -> Tensor:
        """``row_scale * (pattern (col_scale * z)) + bias``, or ``A z + bias``, along the nodes.

        Of ternary values the sums are integers: ``(row * scale) * sum + bias``. Where ``z`` is a
        multiple of ``integers``, these are summed, and only these where it is None.
        """
        if z is None:
            assert integers is not None
            return integers.sums(adjacency, bias, self._use_col)
        if self._letters.bspmm[0] == "B":
            self._note_signs("hidden", z)
        q, scale = z, None
        if self.hidden_quantizer is not None:
            q, scale = self.hidden_quantizer(z)
        if q.dim() == 2 and self.node_dim in (0, -2):
            out = self._sum_rows(q, scale, adjacency, bias).to(z.dtype)
            if integers is None or scale is not None:
                return out
            return with_value(out, integers.sums(adjacency, bias, self._use_col))
        by_node = q.movedim(self.node_dim, 0)
        out = self._sum_rows(by_node.flatten(1), scale, adjacency, None).to(z.dtype)
        out = out.view(-1, *by_node.shape[1:]).movedim(0, self.node_dim)
        return out if bias is None else out + bias

    def _sum_rows(
        self,
        q: Tensor,
        scale: Tensor | None,
        adjacency: BitAdjacency | SpreadPattern,
        bias: Tensor | None,
    ) -> Tensor:
        if isinstance(adjacency, SpreadPattern):
            return adjacency.sums(q, bias, True, self._use_col, self._to_signs)
        if scale is None:
            return aggregate(q, adjacency, bias, use_col=self._use_col)
        sums = aggregate(q, adjacency, use_row=False, use_col=False)
        row = adjacency.row_scale
        out = (scale if row is None else (row * scale).unsqueeze(1)) * sums
        return out if bias is None else out + bias

    def _as_messages(self, z: Tensor) -> Tensor:
        """Floats of ternary values, for PyG's message passing."""
        if self.hidden_quantizer is None:
            return z
        q, scale = self.hidden_quantizer(z)
        return (scale * q).to(z.dtype)

    def _edge_factors(
        self, edge_index: Tensor, adjacency: BitAdjacency, edge_weight: Tensor | None
    ) -> Tensor:
        """The factors of an adjacency without values as weights of its edges in PyG's order.

        Edges of weight 0, which are no entries of the adjacency, stay so.
        """
        toward, source = (1, 0) if self.flow == "source_to_target" else (0, 1)
        weight = torch.ones(edge_index.size(1), device=edge_index.device, dtype=torch.float32)
        if edge_weight is not None:
            weight = (edge_weight != 0).to(weight.dtype)
        row = adjacency.row_scale
        if self._reduction == "mean":
            # PyG's mean divides by the number of edges itself.
            degree = torch.bincount(edge_index[toward], minlength=adjacency.shape[0]).float()
            row = degree if row is None else row * degree
        if row is not None:
            weight = weight * row[edge_index[toward]]
        if adjacency.col_scale is not None and self._use_col:
            weight = weight * adjacency.col_scale[edge_index[source]]
        return weight

    def _output(self, out: Tensor) -> Tensor:
        """Norm and sign of the layer's output."""
        if self.output_norm is not None:
            out = on_rows(self.output_norm, out)
        if self._letters.bspmm[2] == "B":
            out = binary_sign(out, self._letters.surrogate, OUTPUT_WINDOW)
        return self._mark(self._with_all_parameters(out))
