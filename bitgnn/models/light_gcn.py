"""LightGCN whose nodes become codes of one bit a dimension."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
import torch_geometric.nn.models
from torch import Tensor, nn

from bitgnn.bits import BitTensor
from bitgnn.nn.recommender import Recommender
from bitgnn.quantize import binary_sign

LightGCNPrecision = Literal["bin", "fp32"]


class LightGCN(torch_geometric.nn.models.LightGCN):
    r"""PyG's ``LightGCN`` with embeddings of :math:`\pm 1` (He et al. 2020).

    .. math::
        e_i = \sum_{l=0}^{L} \alpha_l x_i^{(l)}, \qquad
        x_i^{(l+1)} = \sum_{j \in N(i)} \frac{x_j^{(l)}}{\sqrt{\deg(i) \deg(j)}}, \qquad
        c_i = s \cdot \mathrm{sgn}(e_i - \bar e)

    The table of embeddings and its propagation are floats in training; signs are taken of the
    sum, once, with the straight-through estimator, around the mean :math:`\bar e` of all nodes:
    propagation draws them to a common direction, whose signs would say nothing. Scores are
    :math:`\langle c_i, c_j \rangle` with a learnt scale s.
    :meth:`freeze` keeps one bit for each dimension of a node, and ranks by Hamming distances.

    Constructor, methods and keys are PyG's; ``scale`` is one key more, and keeps its value where a
    state lacks it, as PyG's do.

    Args:
        num_nodes: nodes of the graph.
        embedding_dim: bits of a code.
        num_layers: propagations.
        alpha: weight of each layer's embedding, or a vector ``[num_layers + 1]``; None for the
            mean.
        precision: ``"bin"``, or ``"fp32"`` for PyG's arithmetic.
        **kwargs: of PyG's ``LGConv``.

    Raises:
        ValueError: ``precision`` is neither of the two.
    """

    def __init__(
        self,
        num_nodes: int,
        embedding_dim: int,
        num_layers: int,
        alpha: float | Tensor | None = None,
        *,
        precision: LightGCNPrecision = "bin",
        **kwargs: Any,
    ) -> None:
        if precision not in get_args(LightGCNPrecision):
            raise ValueError(f"LightGCN: precision must be 'bin' or 'fp32', got {precision!r}")
        super().__init__(num_nodes, embedding_dim, num_layers, alpha, **kwargs)
        self.precision = precision
        if precision == "bin":
            self.scale = nn.Parameter(torch.empty(()))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the embeddings anew; scores of unrelated nodes start with variance 1."""
        super().reset_parameters()
        if getattr(self, "scale", None) is not None:
            nn.init.constant_(self.scale, max(self.embedding_dim, 1) ** -0.25)

    def get_embedding(self, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Embeddings ``[num_nodes, embedding_dim]``; in ``"bin"`` of +s and -s."""
        if self.precision == "fp32":
            plain: Tensor = super().get_embedding(edge_index, edge_weight)
            return plain
        return self.scale * binary_sign(self._centred(edge_index, edge_weight))

    def _centred(self, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
        """Floats whose signs are the codes."""
        x: Tensor = super().get_embedding(edge_index, edge_weight)
        return x - x.mean(dim=0)

    def recommend(
        self,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        src_index: Tensor | None = None,
        dst_index: Tensor | None = None,
        k: int = 1,
        sorted: bool = True,
    ) -> Tensor:
        """Find the ``k`` best nodes of ``dst_index`` for each of ``src_index``, as PyG does.

        In ``"bin"`` they are those of :meth:`Recommender.recommend`, to which :meth:`freeze` leads.
        """
        if self.precision == "fp32":
            found: Tensor = super().recommend(
                edge_index, edge_weight, src_index, dst_index, k, sorted
            )
            return found
        return self.freeze(edge_index, edge_weight).recommend(src_index, dst_index, k, sorted)

    @torch.no_grad()
    def freeze(self, edge_index: Any, edge_weight: Tensor | None = None) -> Recommender:
        """Propagate once more and keep the signs, one bit for each dimension of a node.

        Args:
            edge_index: the graph, as in training.
            edge_weight: float ``[E]`` or None.

        Raises:
            ValueError: the model is in ``"fp32"``, which has no codes, or its embeddings are not
                finite.
        """
        if self.precision == "fp32":
            raise ValueError("freeze: precision must be 'bin', got 'fp32', which has no codes")
        x = self._centred(edge_index, edge_weight)
        if not bool(torch.isfinite(x).all()):
            raise ValueError("freeze: embeddings must be finite, got NaN or infinity")
        return Recommender(BitTensor.from_float(x), self.scale)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *arguments: Any) -> None:
        if self.precision == "bin" and f"{prefix}scale" not in state_dict:
            state_dict[f"{prefix}scale"] = self.scale.detach()  # of load_state_dict's own copy
        super()._load_from_state_dict(state_dict, prefix, *arguments)
