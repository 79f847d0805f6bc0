"""FrozenGCN: a trained binary GCN on packed bits, one operator call per product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn.bits import BitAdjacency, BitTensor, set_bits
from bitgnn.inference.frozen_layer import BUFFERS, FrozenGCNLayer, check_parts, layer_forms
from bitgnn.nn.adjacency import gcn_adjacency

__all__ = ["FrozenGCN", "GraphOptions"]

_pack = torch.ops.bitgnn.pack.default
_pack_scaled = torch.ops.bitgnn.pack_scaled.default


@dataclass(frozen=True)
class GraphOptions:
    """How an edge index becomes the adjacency: the options of the trained layers."""

    normalize: bool = True
    add_self_loops: bool = True
    improved: bool = False
    flow: str = "source_to_target"


class FrozenGCN(nn.Module):
    """Inference form of a binary GCN: packed weights, thresholds instead of batch norm and sign.

    Made by :func:`bitgnn.freeze` or :func:`bitgnn.load`. It has no parameters and runs in
    inference mode.

    Args:
        letters: one pair ``"xyz+xyz"`` a layer.
        layers: the layers.
        graph: how an edge index is normalised.
    """

    kind = "gcn"

    def __init__(
        self, letters: Sequence[str], layers: Sequence[FrozenGCNLayer], graph: GraphOptions
    ) -> None:
        super().__init__()
        self.letters = tuple(letters)
        self.layers = nn.ModuleList(layers)
        self.graph = graph
        self._chain = tuple(layers)
        self.in_channels = layers[0].form.in_channels
        self.out_channels = layers[-1].form.out_channels
        self.eval()

    def forward(
        self, x: Tensor | BitTensor | BitAdjacency, adjacency: BitAdjacency | Any
    ) -> Tensor:
        """Class scores of each node.

        Args:
            x: ``[N, in_channels]`` floats as the trained model takes them, or the result of
                :meth:`pack_features`.
            adjacency: the graph from :meth:`prepare_graph`; an edge index or sparse tensor is
                converted anew by each call.

        Returns:
            ``[N, out_channels]`` float32 logits, an inference tensor.

        Raises:
            ValueError: the number of features or of nodes does not fit, or packed features lack
                the row scale this model needs.
        """
        num_nodes, size = x.shape
        if size != self.in_channels:
            raise ValueError(f"FrozenGCN: x must have {self.in_channels} features, got {size}")
        with torch.inference_mode():
            if not isinstance(adjacency, BitAdjacency):
                adjacency = self.prepare_graph(adjacency, num_nodes)
            if adjacency.num_cols != num_nodes:
                raise ValueError(
                    f"FrozenGCN: adjacency has {adjacency.num_cols} nodes, x has {num_nodes}"
                )
            first, *rest = self._chain
            value = first.aggregate(self._transform_features(first, x), adjacency)
            is_bits = first.form.out_bits
            for layer in rest:
                value = layer.forward(value, adjacency, is_bits)
                is_bits = layer.form.out_bits
        return value

    def _transform_features(
        self, first: FrozenGCNLayer, x: Tensor | BitTensor | BitAdjacency
    ) -> Tensor:
        """The first layer's dense product for features in any form."""
        if isinstance(x, Tensor):
            return first.transform(x, False, None)
        if isinstance(x, BitTensor):
            if x.scale is None and first.form.uses_scale:
                raise ValueError("FrozenGCN: packed x must carry a row scale; use pack_features(x)")
            return first.transform(x.words, True, x.scale)
        if not first.form.hidden_bits:
            raise ValueError(
                "FrozenGCN: x must be floats or a BitTensor, got the pattern of set bits, which "
                "only a first layer with bit output takes"
            )
        return first.transform_pattern(x)

    @torch.inference_mode()
    def pack_features(
        self, x: Tensor, check_finite: bool = False, layout: str = "auto"
    ) -> BitTensor | BitAdjacency:
        """Standardise, binarise and pack raw features once for many calls.

        Args:
            x: ``[N, in_channels]`` floats.
            check_finite: raise where ``x`` holds NaN or infinity.
            layout: ``"dense"`` for packed words; ``"sparse"`` for the pattern of set bits, which
                only forms that hand bits from the first product to its aggregation can use;
                ``"auto"`` for the smaller of those the model can use, which is also the faster.

        Returns:
            The bits, with the row scale if the model uses one, or their pattern.

        Raises:
            ValueError: the number of features does not fit, ``x`` is not finite, or the layout is
                unknown or of no use to this model.
        """
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise ValueError(
                f"FrozenGCN.pack_features: x must be [N, {self.in_channels}], got {list(x.shape)}"
            )
        if check_finite and not bool(torch.isfinite(x).all()):
            raise ValueError("FrozenGCN.pack_features: x must be finite, got NaN or infinity")
        first = self._chain[0]
        layouts = ("auto", "dense", "sparse") if first.form.hidden_bits else ("auto", "dense")
        if layout not in layouts:
            raise ValueError(
                f"FrozenGCN.pack_features: layout must be one of {layouts} for this model, "
                f"got {layout!r}"
            )
        if first.form.uses_scale:
            words, scale = _pack_scaled(x, first.x_threshold, first.x_gain)
            return BitTensor(words, self.in_channels, scale)
        bits = BitTensor(_pack(x, first.x_threshold), self.in_channels)
        if layout == "dense" or "sparse" not in layouts:
            return bits
        pattern = set_bits(bits)
        return pattern if layout == "sparse" or pattern.nbytes < bits.nbytes else bits

    def prepare_graph(
        self, edge_index: Any, num_nodes: int, edge_weight: Tensor | None = None
    ) -> BitAdjacency:
        """Normalise a graph once for many calls, as the trained layers did.

        Args:
            edge_index: ``[2, E]`` edge index or transposed sparse adjacency.
            num_nodes: nodes of the graph.
            edge_weight: ``[E]`` float weights beside an edge index.
        """
        return gcn_adjacency(edge_index, num_nodes, edge_weight, **asdict(self.graph))

    def description(self) -> dict[str, Any]:
        """Everything but the tensors, as plain values: what a checkpoint's JSON holds."""
        forms = [layer.form for layer in self._chain]
        return {
            "letters": list(self.letters),
            "sizes": [self.in_channels] + [form.out_channels for form in forms],
            "graph": asdict(self.graph),
        }

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> FrozenGCN:
        """The inverse of :meth:`description` and ``state_dict``.

        Raises:
            ValueError: a tensor is missing, left over or of the wrong shape or dtype.
        """
        letters, sizes = description["letters"], description["sizes"]
        forms = layer_forms(letters, sizes)
        left = dict(tensors)
        layers = []
        for i, form in enumerate(forms):
            prefix = f"layers.{i}."
            parts = {name: left.pop(prefix + name, None) for name in BUFFERS}
            check_parts(form, parts, prefix, is_first=i == 0)
            layers.append(FrozenGCNLayer(form, parts))
        if left:
            raise ValueError(f"FrozenGCN: unexpected tensors {sorted(left)}")
        return cls(letters, layers, GraphOptions(**description["graph"]))
