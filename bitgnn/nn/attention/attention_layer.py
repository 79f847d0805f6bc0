"""Base of GATConv and GATv2Conv: projections to bits, and attention over them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import (
    add_self_loops,
    is_sparse,
    is_torch_sparse_tensor,
    remove_self_loops,
)
from torch_geometric.utils.sparse import set_sparse_value

from bitgnn.bits import BitAdjacency
from bitgnn.nn.adjacencies import gcn_adjacency, kept_adjacency
from bitgnn.nn.aggregation import with_value
from bitgnn.nn.edge_features import edge_order, ordered_features
from bitgnn.nn.inputs.float_inputs import as_pair, float_features
from bitgnn.nn.neighbour_layer import NeighbourLayer
from bitgnn.nn.precision import LayerPrecision, Role
from bitgnn.quantize import binary_sign


class AttentionLayer(NeighbourLayer):
    """Mixin of layers whose messages are weighted by a softmax over the edges of a node.

    ``dropout`` is PyG's: of the attention coefficients in training.
    """

    heads: int
    out_channels: int
    concat: bool
    negative_slope: float
    add_self_loops: bool
    edge_dim: int | None
    fill_value: Any
    residual: bool
    lin_edge: Any
    res: Any
    bias: Tensor | None

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        residual: bool = False,
        precision: str | LayerPrecision | None = None,
        role: Role | None = None,
        **kwargs: Any,
    ) -> None:
        self._set_precision(precision, dropout, role)
        pyg: Any = super()
        pyg.__init__(
            in_channels, out_channels, heads, concat, negative_slope, dropout, add_self_loops,
            edge_dim, fill_value, bias, residual=residual, **kwargs,
        )  # fmt: skip
        self._complete(in_channels, heads * out_channels)

    def _choose_precision(
        self, precision: str | LayerPrecision | None, role: Role | None = None
    ) -> None:
        super()._choose_precision(precision, role)
        if self._letters.sum_letter.level:
            raise ValueError(
                f"{type(self).__name__}: precision must aggregate bits or floats, got "
                f"{str(self._letters)!r}"
            )
        if self._forms is not None:
            # Self loops are among the messages, and sums weighted by floats are no integers.
            self._forms = {
                name: replace(form, shortcut=False) for name, form in self._forms.items()
            }
            self._forms["few_bits"] = self._forms["hidden"]

    @property
    def _input_dropout(self) -> float:
        return 0.0

    def _spread_thresholds(self) -> None:
        """Spread the thresholds of each head over quantiles of their own."""
        super()._spread_thresholds()
        norm: Any = getattr(self, "hidden_norm", None)
        if self._forms is not None and norm is not None:
            with torch.no_grad():
                norm.bias.copy_(norm.bias.view(-1, self.heads).t().reshape(-1).clone())

    def _projections(self, x: Any) -> tuple[Tensor, Tensor | None]:
        """Messages ``[N, H * C]``, and projections of the destinations where there are some."""
        source, target = as_pair(type(self).__name__, x)
        if source is None:
            raise ValueError(f"{type(self).__name__}: x must hold the features of the sources")
        for side in (source, target):
            if side is not None and side.dim() != 2:
                raise ValueError(f"{type(self).__name__}: x must be [N, K], got {list(side.shape)}")
        has_two = self._maps[1] is not None
        z, own = self._products_of(
            self._prepare(source), source, target if has_two else None, False
        )
        assert z is not None
        if not has_two:
            own = z if target is source else None
            if own is None and target is not None:
                own = self._products_of(self._prepare(target), target, None, False)[0]
        elif own is not None and self._to_signs:
            own = binary_sign(own, self._letters.surrogate)
        return z, own

    def _looped(
        self, edge_index: Any, edge_attr: Tensor | None, num_nodes: int
    ) -> tuple[Any, Tensor | None]:
        """Edges with PyG's self loops."""
        if not self.add_self_loops:
            return edge_index, edge_attr
        if isinstance(edge_index, SparseTensor):
            import torch_sparse

            if self.edge_dim is not None:
                raise NotImplementedError(
                    f"{type(self).__name__}: edge_attr must be left out beside a SparseTensor and "
                    "add_self_loops"
                )
            return torch_sparse.set_diag(edge_index), edge_attr
        edge_index, edge_attr = remove_self_loops(edge_index, edge_attr)
        return add_self_loops(
            edge_index, edge_attr, fill_value=self.fill_value, num_nodes=num_nodes
        )

    def _attended(
        self, z: Tensor, own: Tensor | None, edge_index: Any, edge_attr: Tensor | None, size: Any
    ) -> tuple[Tensor, Tensor]:
        """PyG's messages: ``[M, H, C]``, and the coefficients ``[E, H]``."""
        raise NotImplementedError

    def _operated(
        self, z: Tensor, own: Tensor, adjacency: BitAdjacency, edge_attr: Tensor | None
    ) -> Tensor:
        """The same of signs by the operator of frozen layers, plus :meth:`_constant`.

        ``edge_attr`` is in the order of the adjacency.
        """
        raise NotImplementedError

    def _constant(self) -> Tensor | None:
        """Term ``[H * C]`` added to the attention in a concatenated result without residual."""
        return self.bias

    def _binary_call(
        self, x: Any, edge_index: Any, edge_attr: Tensor | None, size: Any, returns_weights: Any
    ) -> Any:
        """Forward of a binary form."""
        x = float_features(type(self).__name__, x)
        target = x if isinstance(x, Tensor) else x[1]
        if edge_attr is not None and self.lin_edge is not None:
            self._check_features(edge_index, edge_attr)
        z, own = self._projections(x)
        res = None if self.res is None or target is None else self.res(target)
        operated = self._by_operator(z, own, edge_index, edge_attr, size, returns_weights)
        if operated is not None and not torch.is_grad_enabled():
            return self._output(self._joined(operated, res, True))
        loops = True
        if isinstance(edge_index, BitAdjacency):
            edge_index, loops = edge_index.to_edge_index(), False
            edge_index = edge_index if self.flow == "source_to_target" else edge_index.flip(0)
        if loops:
            nodes = z.size(0) if own is None else min(z.size(0), own.size(0))
            nodes = nodes if size is None else min(size)
            edge_index, edge_attr = self._looped(edge_index, edge_attr, nodes)
        out, alpha = self._attended(z, own, edge_index, edge_attr, size)
        out = self._joined(out.flatten(1), res, False)
        if operated is not None:
            out = with_value(out, self._joined(operated, res, True))
        out = self._output(out)
        if not returns_weights:
            return out
        if isinstance(edge_index, SparseTensor):
            return out, edge_index.set_value(alpha, layout="coo")
        if is_torch_sparse_tensor(edge_index):
            return out, (set_sparse_value(edge_index, alpha), alpha)
        return out, (edge_index, alpha)

    def _check_features(self, edge_index: Any, edge_attr: Tensor) -> None:
        """Require a row of features for each edge, where their number is plain to see."""
        is_ready = isinstance(edge_index, BitAdjacency)
        if not is_ready and (not isinstance(edge_index, Tensor) or is_sparse(edge_index)):
            return
        edges = edge_index.nnz if is_ready else edge_index.size(1)
        shape = list(edge_attr.shape)
        if shape != [edges, self.edge_dim] and not (self.edge_dim == 1 and shape == [edges]):
            raise ValueError(
                f"{type(self).__name__}: edge_attr must be [{edges}, {self.edge_dim}] like the "
                f"edges and edge_dim, got {shape}"
            )

    def _joined(self, out: Tensor, res: Tensor | None, is_operated: bool) -> Tensor:
        """Heads side by side or their mean, plus residual and bias."""
        has_constant = is_operated and self.concat and self.res is None
        if not self.concat:
            out = head_mean(out, self.heads)
        out = out if res is None else out + res
        return out if self.bias is None or has_constant else out + self.bias

    def _by_operator(
        self,
        z: Tensor,
        own: Tensor | None,
        edge_index: Any,
        edge_attr: Tensor | None,
        size: Any,
        returns_weights: Any,
    ) -> Tensor | None:
        """The attention in evaluation as a frozen layer computes it; None where it does not."""
        is_plain = isinstance(edge_index, BitAdjacency) or (
            isinstance(edge_index, Tensor) and edge_index.layout == torch.strided
        )
        if self.training or not is_plain or own is None or size is not None or returns_weights:
            return None
        if self._letters.bspmm[0] != "B" or z.size(0) != own.size(0):
            return None
        if z.dtype != torch.float32 or self._shows_messages or self._aggregates_messages:
            return None
        if not z.is_cuda and not bool(torch.isfinite(z).all() & torch.isfinite(own).all()):
            return None  # operators on bits know no NaN
        adjacency, edge_attr = edge_index, None if self.lin_edge is None else edge_attr
        if edge_attr is not None:
            edge_attr = edge_attr.detach()
            edge_attr = edge_attr.unsqueeze(1) if edge_attr.dim() == 1 else edge_attr
        if not isinstance(edge_index, BitAdjacency) and edge_attr is not None:
            order = z.size(0), self.add_self_loops, self.flow, type(self).__name__
            adjacency = edge_order(edge_index, *order).adjacency
            last = self.add_self_loops, self.fill_value, self.flow
            edge_attr = ordered_features(z.size(0), edge_index, edge_attr, *last)
        elif not isinstance(edge_index, BitAdjacency):
            options = {"normalize": False, "add_self_loops": self.add_self_loops}
            given = gcn_adjacency, edge_index, None, z.size(0)
            adjacency = kept_adjacency(*given, **options, flow=self.flow)
        adjacency.check_written()
        has_loops = self.add_self_loops and adjacency is not edge_index
        needs_messages = self._message_bias() is not None and not has_loops
        if needs_messages and not bool((adjacency.rowptr.diff() > 0).all()):
            return None  # a node without messages has no bias of theirs
        with torch.no_grad():
            return self._operated(z, own, adjacency, edge_attr)

    def _operator_bias(self) -> Tensor | None:
        """Bias that the operator adds, float32."""
        found = self._constant() if self.concat and self.res is None else self._message_bias()
        return None if found is None else found.detach().float().contiguous()

    def _message_bias(self) -> Tensor | None:
        """Bias of all messages ``[H * C]``, which a mean of them keeps."""
        return None


def head_mean(out: Tensor, heads: int) -> Tensor:
    """Mean over heads ``[N, H * C]`` to ``[N, C]``, by the product of a frozen model."""
    return functional.linear(out, mean_weight(heads, out.size(1) // heads, out))


def mean_weight(heads: int, channels: int, like: Tensor) -> Tensor:
    """``[C, H * C]``: identities over H side by side."""
    eye = torch.eye(channels, device=like.device, dtype=like.dtype)
    return (eye / heads).repeat(1, heads)
