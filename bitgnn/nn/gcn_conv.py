"""GCNConv with binary products: PyG's layer plus a precision."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.dense.linear import is_uninitialized_parameter
from torch_geometric.typing import SparseTensor

from bitgnn.bits import BitAdjacency
from bitgnn.nn.adjacency import gcn_adjacency
from bitgnn.nn.aggregate import aggregate
from bitgnn.nn.precision import LayerPrecision
from bitgnn.quantize import Surrogate, binary_linear, binary_sign, fast_dropout

__all__ = ["GCNConv"]

# Sums of neighbours' signs spread over several units: a window of 1 would stop most gradients
# (Cora: 54 % accuracy with 1, 79 % with 4, the same with 16).
OUTPUT_WINDOW = 4.0


class GCNConv(torch_geometric.nn.GCNConv):
    r"""PyG's ``GCNConv`` whose two products can be binary.

    With :math:`\hat A = \hat D^{-1/2}(A + I)\hat D^{-1/2}`, :math:`\alpha_i = \mathrm{mean}|X_i|`
    and :math:`m_o = \mathrm{mean}|W_o|`:

    * ``"fp32"``: :math:`\hat A X W^\top + b`, PyG's own code.
    * ``"full"`` (``"FBF+FBF"``): :math:`\hat A Y + b` with
      :math:`Y_{io} = \alpha_i m_o\,\mathrm{sgn}(X_i)\cdot\mathrm{sgn}(W_o)` (Bi-GCN).
    * ``"bin"`` (``"FBB+BBF"``): :math:`\hat D^{-1/2} (A + I)\,\mathrm{sgn}(Y) + b`; on bits the
      column factor cannot act and is left out.
    * letters ``"xyz+xyz"``: activation, weight and output of the dense product, then activation,
      adjacency and output of the aggregation. A B activation of the dense product is used by its
      sign alone; a B output is :math:`\mathrm{sgn}` of the value, as floats +1 and -1; an F
      adjacency uses the float edge weights exactly instead of their factorisation.

    The layer computes in floats with surrogate gradients what the frozen layer computes on bits.
    The bias is added after the aggregation, as in PyG. In the binary forms no gradient reaches
    ``edge_weight`` unless the adjacency letter is F.

    Sources: Kipf and Welling 2017; Wang et al., Bi-GCN, 2021; Chen et al., BitGNN, 2023.

    Args:
        in_channels: size of each input sample, or -1 to take it from the first input.
        out_channels: size of each output sample.
        improved: as in PyG.
        cached: keep the normalised graph of the first call.
        add_self_loops: as in PyG.
        normalize: as in PyG.
        bias: as in PyG.
        precision: ``"fp32"``, ``"full"``, ``"bin"`` or letters.
        dropout: probability of dropping an activation in front of the dense product in training;
            in binary forms it acts on the binarised activation.
        **kwargs: further arguments of PyG's ``MessagePassing``.

    Raises:
        ValueError: unknown precision, ``dropout`` outside [0, 1), or a binary form with an
            aggregation other than addition.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        improved: bool = False,
        cached: bool = False,
        add_self_loops: bool | None = None,
        normalize: bool = True,
        bias: bool = True,
        precision: str = "fp32",
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        letters = LayerPrecision.parse(precision)
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"GCNConv: dropout must be in [0, 1), got {dropout}")
        super().__init__(
            in_channels, out_channels, improved, cached, add_self_loops, normalize, bias, **kwargs
        )
        if not letters.is_float and kwargs.get("aggr", "add") not in ("add", "sum"):
            raise ValueError(
                f"GCNConv: precision {precision!r} aggregates by addition, "
                f"got aggr={kwargs['aggr']!r}"
            )
        self.letters = letters
        self.dropout = dropout
        self.surrogate: Surrogate = "ste"
        self._reset_binary_weight()

    @property
    def precision(self) -> str:
        """Name or letters of the layer's precision."""
        return str(self.letters)

    def reset_parameters(self) -> None:
        """Draw the weight anew, zero the bias, forget the cached graph."""
        super().reset_parameters()
        self._cached_bit_adjacency: BitAdjacency | None = None
        if hasattr(self, "letters"):  # PyG's constructor calls this before the letters are known.
            self._reset_binary_weight()

    def _reset_binary_weight(self) -> None:
        """Binary weights start at N(0, 1 / in), Bi-GCN's initialisation."""
        weight = self.lin.weight
        if not self.letters.is_float_linear and not is_uninitialized_parameter(weight):
            torch.nn.init.normal_(weight, std=1.0 / math.sqrt(max(weight.size(1), 1)))

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Apply the layer.

        Args:
            x: ``[N, in_channels]`` float features.
            edge_index: ``[2, E]`` edge index, transposed sparse adjacency (torch sparse tensor or
                ``torch_sparse.SparseTensor``), or a ``BitAdjacency``, which is used as it is:
                already normalised, no self loops added.
            edge_weight: ``[E]`` float weights beside an edge index.

        Returns:
            ``[N, out_channels]`` float tensor; +1 and -1 if the output letter is B.

        Raises:
            ValueError: ``x`` is a pair or its width is not ``in_channels``, the graph does not
                fit, or an F adjacency letter is given a ``BitAdjacency``.
        """
        if not isinstance(x, Tensor):
            raise ValueError(
                "GCNConv: x must be one tensor of node features, got a pair; "
                "bipartite message passing is not supported"
            )
        is_bit_adjacency = isinstance(edge_index, BitAdjacency)
        if self.letters.is_float and not is_bit_adjacency:
            x = fast_dropout(x, self.dropout, self.training)
            out: Tensor = super().forward(x, edge_index, edge_weight)
            return out
        y = self._transform(x)
        if self.letters.bspmm[1] == "F" and not is_bit_adjacency:
            out = self._aggregate_exactly(y, edge_index, edge_weight)
        elif self.letters.bspmm[1] == "F" and not self.letters.is_float:
            raise ValueError(
                f"GCNConv: precision {self.precision!r} aggregates with float edge weights, "
                "got a BitAdjacency; pass an edge index or a sparse tensor"
            )
        else:
            adjacency = self._bit_adjacency(x.size(0), edge_index, edge_weight)
            use_col = self.letters.bspmm[0] == "F"
            out = aggregate(y, adjacency, self.bias, use_col=use_col)
        return (
            binary_sign(out, self.surrogate, OUTPUT_WINDOW) if self.letters.bspmm[2] == "B" else out
        )

    def _transform(self, x: Tensor) -> Tensor:
        """The dense product up to the boundary between the two letters."""
        if is_uninitialized_parameter(self.lin.weight):
            self.lin.initialize_parameters(self.lin, (x,))
            self._reset_binary_weight()
        if x.dim() != 2 or x.size(1) != self.lin.weight.size(1):
            raise ValueError(
                f"GCNConv: x must be [N, {self.lin.weight.size(1)}], got {list(x.shape)}"
            )
        if self.letters.is_float_linear:
            y: Tensor = self.lin(fast_dropout(x, self.dropout, self.training))
            return y
        return binary_linear(
            x,
            self.lin.weight,
            x_scale=self.letters.bmm[0] == "F",
            sign_output=self.letters.bmm[2] == "B",
            dropout=self.dropout,
            training=self.training,
            surrogate=self.surrogate,
        )

    def _bit_adjacency(
        self, num_nodes: int, edge_index: Any, edge_weight: Tensor | None
    ) -> BitAdjacency:
        """The pattern to aggregate with: the given one, the cached one, or a new one."""
        if isinstance(edge_index, BitAdjacency):
            return edge_index
        if self._cached_bit_adjacency is not None:
            return self._cached_bit_adjacency
        adjacency = gcn_adjacency(
            edge_index,
            num_nodes,
            edge_weight,
            normalize=self.normalize,
            add_self_loops=self.add_self_loops,
            improved=self.improved,
            flow=self.flow,
        )
        if self.cached:
            self._cached_bit_adjacency = adjacency
        return adjacency

    def _aggregate_exactly(self, y: Tensor, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
        """PyG's aggregation with float weights, for the adjacency letter F."""
        if self.normalize:
            normalized = gcn_norm(
                edge_index,
                edge_weight,
                y.size(self.node_dim),
                self.improved,
                self.add_self_loops,
                self.flow,
                y.dtype,
            )
            is_pair = not isinstance(edge_index, SparseTensor)
            edge_index, edge_weight = normalized if is_pair else (normalized, None)
        out: Tensor = self.propagate(edge_index, x=y, edge_weight=edge_weight)
        return out if self.bias is None else out + self.bias

    def __repr__(self) -> str:
        base = f"{self.in_channels}, {self.out_channels}"
        if not self.letters.is_float:
            base += f", precision={self.precision!r}"
        return f"{self.__class__.__name__}({base})"
