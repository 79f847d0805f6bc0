"""TransformerConv with binary maps and messages: PyG's layer plus a precision."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.typing import OptTensor, SparseTensor
from torch_geometric.utils import is_sparse

from bitgnn.bits import BitAdjacency
from bitgnn.nn.adjacencies import kept_adjacency, neighbour_adjacency
from bitgnn.nn.aggregation import with_value
from bitgnn.nn.attention.attention_layer import head_mean
from bitgnn.nn.binary_layer import scriptable_twin, shows_messages
from bitgnn.nn.gin_conv import name_of
from bitgnn.nn.inputs.float_inputs import as_pair, float_features
from bitgnn.nn.linear import Linear
from bitgnn.nn.precision import LayerPrecision
from bitgnn.quantize import binary_sign

MAPS = ("lin_key", "lin_query", "lin_value", "lin_skip")


class TransformerConv(torch_geometric.nn.TransformerConv):
    r"""PyG's ``TransformerConv`` whose maps and messages can be binary.

    A layer gives :math:`W_1 x_i + \sum_j \mathrm{softmax}_j(q_i \cdot k_j / \sqrt{C})\, v_j` for
    each head, where

    * ``"fp32"``: PyG's own code.
    * ``"bin"``: the maps to q, k, v and :math:`W_1` are :class:`~bitgnn.nn.Linear`. In a layer that
      a binary one reads messages are the signs of v, one bit a feature. Scores are floats.
    * ``"full"``: the same maps, and float messages.

    In evaluation scores, softmax and sums of bits are one pass (:func:`bitgnn.ops.gat.transformer`)
    without a float an edge. PyG's messages run in training, in the last layer, with features of
    edges, which are part of them, with sparse matrices and ``return_attention_weights``.

    Source: Shi et al., "Masked Label Prediction", IJCAI 2021.

    Args:
        in_channels: size of each input sample, a pair of sizes of sources and destinations, or -1
            to take it from the first input.
        out_channels: size of each head's output.
        heads: as in PyG.
        concat: as in PyG.
        beta: as in PyG; its map stays in floats.
        dropout: as in PyG, of the attention coefficients.
        edge_dim: as in PyG; features of edges stay in floats.
        bias: as in PyG.
        root_weight: as in PyG.
        precision: ``"fp32"``, ``"full"`` or ``"bin"``.
        **kwargs: further arguments of PyG's ``MessagePassing``.

    Raises:
        ValueError: unknown precision.
    """

    propagate_type = {  # noqa: RUF012
        "query": Tensor, "key": Tensor, "value": Tensor, "edge_attr": OptTensor
    }  # fmt: skip
    _alpha: Tensor | None
    _has_bits = False

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        beta: bool = False,
        dropout: float = 0.0,
        edge_dim: int | None = None,
        bias: bool = True,
        root_weight: bool = True,
        precision: str | LayerPrecision | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            in_channels, out_channels, heads, concat, beta, dropout, edge_dim, bias, root_weight,
            **kwargs,
        )  # fmt: skip
        self.precision = name_of("TransformerConv", precision)
        if self.precision == "fp32":
            return
        for name in MAPS:
            old: Any = getattr(self, name)
            sizes = old.in_channels, old.out_channels, old.bias is not None
            made = Linear(*sizes, precision=self.precision)
            made.choose_by_place(ends_in_floats=False)
            setattr(self, name, made)

    @property
    def has_bits(self) -> bool:
        """True where messages are signs, in layers that a binary one reads."""
        letters = getattr(self.lin_value, "letters", None)
        if letters is None:  # of a map of floats, or of a packed one
            return self._has_bits
        return self.precision == "bin" and letters.hidden_norm is not None

    def __getstate__(self) -> dict[str, Any]:
        """A copy, whose maps may be packed, knows what its messages are."""
        return {**vars(self), "_has_bits": self.has_bits}

    def __prepare_scriptable__(self) -> Any:
        """The layer of PyG that ``torch.jit.script`` compiles in place of a float one."""
        if self.precision != "fp32":
            raise RuntimeError(
                f"TransformerConv: TorchScript compiles precision 'fp32' alone, got "
                f"{self.precision!r}"
            )
        return scriptable_twin(self)

    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Apply the layer.

        Args:
            x: ``[N, in_channels]`` floats (packed or not), or a pair of those of sources and
                destinations.
            edge_index: ``[2, E]`` edge index, transposed sparse adjacency, or in binary precisions
                a ``BitAdjacency``.
            edge_attr: ``[E, edge_dim]`` floats.
            return_attention_weights: as in PyG.

        Returns:
            ``[N, heads * out_channels]`` or, without ``concat``, ``[N, out_channels]`` floats; with
            ``return_attention_weights`` with edges and coefficients, as in PyG.

        Raises:
            TypeError: in binary precisions ``x`` holds no floats.
            ValueError: in binary precisions the width of ``x`` or the graph does not fit.
        """
        name = type(self).__name__
        if self.precision == "fp32" and not isinstance(edge_index, BitAdjacency):
            return super().forward(x, edge_index, edge_attr, return_attention_weights)
        source, target = as_pair(name, float_features(name, x))
        target = source if isinstance(x, Tensor) else target
        if source is None or target is None:
            raise ValueError(f"{name}: x must hold the features of sources and destinations")
        query, key, value = self.lin_query(target), self.lin_key(source), self.lin_value(source)
        value = binary_sign(value) if self.has_bits else value
        out, alpha = None, None
        if edge_attr is None and not isinstance(return_attention_weights, bool):
            out = self._operated(query, key, value, edge_index)
        if out is None or torch.is_grad_enabled():
            edges, operated = edge_index, out
            if isinstance(edges, BitAdjacency):
                edges = edges.to_edge_index()
                edges = edges if self.flow == "source_to_target" else edges.flip(0)
            rows = (side.view(-1, self.heads, self.out_channels) for side in (query, key, value))
            given: Any = dict(zip(("query", "key", "value"), rows, strict=True))
            out = self.propagate(edges, **given, edge_attr=edge_attr).flatten(1)
            alpha, self._alpha = self._alpha, None
            out = out if operated is None else with_value(out, operated)
        out = out if self.concat else head_mean(out, self.heads)
        if self.root_weight:
            own = self.lin_skip(target)
            if self.lin_beta is None:
                out = out + own
            else:
                share = self.lin_beta(torch.cat([out, own, out - own], -1)).sigmoid()
                out = share * own + (1 - share) * out
        if not isinstance(return_attention_weights, bool):
            return out
        if isinstance(edge_index, SparseTensor):
            return out, edge_index.set_value(alpha, layout="coo")
        return out, (edge_index, alpha)

    def _operated(
        self, query: Tensor, key: Tensor, value: Tensor, edge_index: Any
    ) -> Tensor | None:
        """The attention in evaluation by the operator; None where PyG's messages run."""
        is_ready = isinstance(edge_index, BitAdjacency)
        if self.training or not self.has_bits or self.lin_edge is not None or shows_messages(self):
            return None
        if value.dim() != 2 or any(t.dtype != torch.float32 for t in (query, key, value)):
            return None
        if not (is_ready or (isinstance(edge_index, Tensor) and not is_sparse(edge_index))):
            return None
        if not value.is_cuda and not bool(torch.isfinite(value).all()):
            return None  # operators on bits know no NaN
        sizes = query.size(0), key.size(0)
        adjacency = edge_index
        if not is_ready:
            options: Any = {"reduction": "add", "flow": self.flow}
            given = neighbour_adjacency, edge_index, None
            adjacency = kept_adjacency(*given, *sizes, **options)
        if adjacency.shape != sizes:
            raise ValueError(
                f"{type(self).__name__}: the adjacency must be {sizes[0]} x {sizes[1]} like the "
                f"nodes, got {adjacency.shape[0]} x {adjacency.shape[1]}"
            )
        adjacency.check_written()
        with torch.no_grad():
            ops, width = torch.ops.bitgnn, value.size(1)
            query = query / math.sqrt(self.out_channels)
            out: Tensor = ops.transformer_bits(
                ops.pack(value), width, self.heads, adjacency.rowptr, adjacency.indices, query, key,
                width, trusted=True,
            )  # fmt: skip
        return out
