"""Recommendations by codes: the frozen form of LightGCN, whose rankings are Hamming distances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bitgnn.bits import BitTensor
from bitgnn.ops.hamming import hamming_topk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self


class Recommender(nn.Module):
    r"""One code of :math:`\pm 1` for each node, and one scale for all of them.

    The score of two nodes is :math:`s^2 \langle c_i, c_j \rangle = s^2 (K - 2 d(c_i, c_j))` with
    their Hamming distance :math:`d`, so that rankings are those of distances.

    Args:
        codes: ``[num_nodes, K]``, without a scale.
        scale: s, float32 of one element, finite.

    Raises:
        TypeError: ``codes`` is not a :class:`~bitgnn.BitTensor`.
        ValueError: ``codes`` has a scale or is a single row, or ``scale`` is not one finite number.
    """

    kind = "recommender"

    def __init__(self, codes: BitTensor, scale: Tensor) -> None:
        super().__init__()
        if not isinstance(codes, BitTensor):
            raise TypeError(f"Recommender: codes must be a BitTensor, got {type(codes).__name__}")
        if codes.words.dim() != 2 or codes.scale is not None:
            raise ValueError("Recommender: codes must be a matrix without a scale")
        if scale.numel() != 1 or not bool(torch.isfinite(scale).all()):
            raise ValueError(f"Recommender: scale must be one finite number, got {scale}")
        self.size = codes.size
        self.register_buffer("words", codes.words)
        self.register_buffer("scale", scale.detach().to(torch.float32).reshape(()).clone())
        self.words: Tensor
        self.scale: Tensor

    @property
    def codes(self) -> BitTensor:
        """The codes ``[num_nodes, K]``."""
        return BitTensor._trusted(self.words, self.size)

    def forward(self, edge_label_index: Tensor) -> Tensor:
        """Scores float32 ``[E]`` of pairs of nodes int64 ``[2, E]``."""
        codes = self.codes.to_float()
        source, target = edge_label_index
        dots = (codes[source] * codes[target]).sum(-1)
        return self.scale.square() * dots

    def recommend(
        self,
        src_index: Tensor | None = None,
        dst_index: Tensor | None = None,
        k: int = 1,
        sorted: bool = True,
        *,
        exclude: Tensor | None = None,
    ) -> Tensor:
        """Find the ``k`` nodes of ``dst_index`` with the highest scores for each of ``src_index``.

        Of equal scores the node that stands earlier in ``dst_index`` wins. Results are always
        sorted, whatever ``sorted`` says.

        Args:
            src_index: int64 ``[Q]``, None for all nodes.
            dst_index: int64 ``[D]``, None for all nodes.
            k: at most D.
            sorted: taken for PyG's sake.
            exclude: pairs int64 ``[2, E]`` never to recommend, such as those trained on.

        Returns:
            Nodes int64 ``[Q, k]``, -1 where fewer than ``k`` are not excluded.

        Raises:
            ValueError: ``k`` is out of range.
        """
        codes, num_nodes = self.codes, self.words.size(0)
        queries = codes if src_index is None else codes[src_index]
        targets = codes if dst_index is None else codes[dst_index]
        if not 0 <= k <= targets.words.size(0):
            raise ValueError(
                f"recommend: k must be from 0 to the {targets.words.size(0)} nodes to choose from, "
                f"got {k}"
            )
        if exclude is None:
            return _nodes(hamming_topk(queries, targets, k)[1], dst_index)
        source = _all_or(src_index, num_nodes, self.words.device)
        most = int(exclude[0].bincount(minlength=num_nodes)[source].max()) if len(source) else 0
        found = hamming_topk(queries, targets, min(k + most, targets.words.size(0)))[1]
        nodes = _nodes(found, dst_index)
        pairs = torch.isin(source[:, None] * num_nodes + nodes, exclude[0] * num_nodes + exclude[1])
        left, order = pairs.sort(dim=1, stable=True)
        return nodes.gather(1, order).masked_fill(left, -1)[:, :k].contiguous()

    def description(self) -> dict[str, Any]:
        """Plain values of a checkpoint."""
        return {"size": self.size}

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> Self:
        """The inverse of :meth:`description` and ``state_dict``; errors where they do not fit."""
        return cls(BitTensor(tensors["words"], description["size"]), tensors["scale"])

    def extra_repr(self) -> str:
        """Size of the codes."""
        return f"{self.words.size(0)}, {self.size}"


def _all_or(index: Tensor | None, count: int, device: torch.device) -> Tensor:
    return torch.arange(count, device=device) if index is None else index


def _nodes(places: Tensor, index: Tensor | None) -> Tensor:
    """Nodes by their places in ``index``."""
    return places if index is None else index[places]
