"""FrozenGCN: a trained binary GCN on packed bits, one operator call per product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.nn import LayerPrecision
from bitgnn.nn.adjacency import gcn_adjacency

__all__ = ["FrozenGCN", "FrozenGCNLayer", "LayerForm", "layer_forms"]

# Bound once: resolving an overload by name costs as much as a small kernel.
_pack = torch.ops.bitgnn.pack.default
_pack_scaled = torch.ops.bitgnn.pack_scaled.default
_bmm_bbb = torch.ops.bitgnn.bmm_bbb.default
_bmm_bbf = torch.ops.bitgnn.bmm_bbf.default
_bmm_fbb = torch.ops.bitgnn.bmm_fbb.default
_bmm_fbf = torch.ops.bitgnn.bmm_fbf.default
_bspmm_bbb = torch.ops.bitgnn.bspmm_bbb.default
_bspmm_bbf = torch.ops.bitgnn.bspmm_bbf.default
_bspmm_fbb = torch.ops.bitgnn.bspmm_fbb.default
_bspmm_fbf = torch.ops.bitgnn.bspmm_fbf.default

BUFFERS = ("weight", "weight_scale", "bias", "threshold", "x_threshold", "x_gain")


@dataclass(frozen=True)
class LayerForm:
    """What crosses the boundaries of one frozen layer.

    Attributes:
        in_channels: width of the input.
        out_channels: width of the output.
        uses_scale: whether the row scale of a float input enters the result.
        hidden_bits: whether the dense product hands bits to the aggregation.
        out_bits: whether the layer returns bits.
    """

    in_channels: int
    out_channels: int
    uses_scale: bool
    hidden_bits: bool
    out_bits: bool


def layer_forms(letters: Sequence[str], sizes: Sequence[int]) -> list[LayerForm]:
    """Boundaries of a chain of layers from their letters.

    A layer returns bits also where its letters say F when the next one looks at signs only: the
    binarisation moves to the producer, where it is a threshold.

    Args:
        letters: one pair ``"xyz+xyz"`` a layer.
        sizes: widths, one more than layers.

    Returns:
        One form a layer.

    Raises:
        ValueError: a layer is not binary or its adjacency letter is F.
    """
    parsed = [LayerPrecision.parse(pair) for pair in letters]
    for pair, precision in zip(letters, parsed, strict=True):
        if precision.bmm[:2] not in ("FB", "BB") or precision.bspmm[1] != "B":
            raise ValueError(
                f"freeze: letters {pair!r} cannot be frozen; the weight and the adjacency must be B"
            )
    scales = [precision.bmm[0] == "F" and precision.bmm[2] == "F" for precision in parsed]
    last = len(parsed) - 1
    return [
        LayerForm(
            sizes[i],
            sizes[i + 1],
            uses_scale=scales[i],
            hidden_bits=precision.bmm[2] == "B",
            out_bits=precision.bspmm[2] == "B" or (i < last and not scales[i + 1]),
        )
        for i, precision in enumerate(parsed)
    ]


class FrozenGCNLayer(nn.Module):
    """One layer: a binary dense product, then an aggregation.

    Args:
        form: the layer's boundaries.
        tensors: ``weight`` int32 ``[out, ceil(in / 32)]``; as needed ``weight_scale`` ``[out]``,
            ``bias`` ``[out]`` (float output) or ``threshold`` ``[out]`` (bit output),
            ``x_threshold`` and ``x_gain`` ``[in]`` for a standardised float input.
    """

    weight: Tensor
    weight_scale: Tensor | None
    bias: Tensor | None
    threshold: Tensor | None
    x_threshold: Tensor | None
    x_gain: Tensor | None

    def __init__(self, form: LayerForm, tensors: Mapping[str, Tensor | None]) -> None:
        super().__init__()
        self.form = form
        for name in BUFFERS:
            self.register_buffer(name, tensors.get(name))

    def forward(
        self, x: Tensor, adjacency: BitAdjacency, is_bits: bool, scale: Tensor | None = None
    ) -> Tensor:
        """Words or floats in, words or floats out, as the form says.

        Args:
            x: int32 words ``[N, ceil(in / 32)]`` if ``is_bits``, else floats ``[N, in]``.
            adjacency: the graph.
            is_bits: whether ``x`` holds words.
            scale: row scale of packed input where the form uses one; None means 1.
        """
        form = self.form
        rowptr, indices, row = adjacency.rowptr, adjacency.indices, adjacency.row
        if form.hidden_bits:
            if is_bits:
                y = _bmm_bbb(x, self.weight, form.in_channels)
            else:
                y = _bmm_fbb(x, self.weight, x_threshold=self.x_threshold, scale=False)
            if form.out_bits:
                out = _bspmm_bbb(y, form.out_channels, rowptr, indices, row, self.threshold)
            else:
                out = _bspmm_bbf(y, form.out_channels, rowptr, indices, row, self.bias)
        else:
            if is_bits:
                y = _bmm_bbf(x, self.weight, form.in_channels, scale, self.weight_scale)
            elif form.uses_scale:
                y = _bmm_fbf(x, self.weight, self.weight_scale, None, self.x_threshold, self.x_gain)
            else:
                words = _pack(x, self.x_threshold)
                y = _bmm_bbf(words, self.weight, form.in_channels, None, self.weight_scale)
            if form.out_bits:
                out = _bspmm_fbb(y, rowptr, indices, row, adjacency.col, self.threshold)
            else:
                out = _bspmm_fbf(y, rowptr, indices, row, adjacency.col, self.bias)
        result: Tensor = out
        return result

    def extra_repr(self) -> str:
        """Widths and boundaries."""
        form = self.form
        middle, end = ("bits" if b else "floats" for b in (form.hidden_bits, form.out_bits))
        return f"{form.in_channels}, {form.out_channels}, hidden={middle}, out={end}"


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

    def forward(self, x: Tensor | BitTensor, adjacency: BitAdjacency | Any) -> Tensor:
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
        is_bits = isinstance(x, BitTensor)
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
            scale = None
            if isinstance(x, BitTensor):
                value, scale = x.words, x.scale
                if scale is None and self._chain[0].form.uses_scale:
                    raise ValueError(
                        "FrozenGCN: packed x must carry a row scale; use pack_features(x)"
                    )
            else:
                value = x
            for layer in self._chain:
                value = layer.forward(value, adjacency, is_bits, scale)
                is_bits, scale = layer.form.out_bits, None
        return value

    @torch.inference_mode()
    def pack_features(self, x: Tensor, check_finite: bool = False) -> BitTensor:
        """Standardise, binarise and pack raw features once for many calls.

        Args:
            x: ``[N, in_channels]`` floats.
            check_finite: raise where ``x`` holds NaN or infinity.

        Returns:
            The bits, with the row scale if the model uses one.

        Raises:
            ValueError: the number of features does not fit or ``x`` is not finite.
        """
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise ValueError(
                f"FrozenGCN.pack_features: x must be [N, {self.in_channels}], got {list(x.shape)}"
            )
        if check_finite and not bool(torch.isfinite(x).all()):
            raise ValueError("FrozenGCN.pack_features: x must be finite, got NaN or infinity")
        first = self._chain[0]
        if not first.form.uses_scale:
            return BitTensor(_pack(x, first.x_threshold), self.in_channels)
        words, scale = _pack_scaled(x, first.x_threshold, first.x_gain)
        return BitTensor(words, self.in_channels, scale)

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
            _check_parts(form, parts, prefix, is_first=i == 0)
            layers.append(FrozenGCNLayer(form, parts))
        if left:
            raise ValueError(f"FrozenGCN: unexpected tensors {sorted(left)}")
        return cls(letters, layers, GraphOptions(**description["graph"]))


def _check_parts(
    form: LayerForm, parts: Mapping[str, Tensor | None], prefix: str, is_first: bool
) -> None:
    words = BitTensor  # its constructor checks dtype and shape of words
    weight = parts["weight"]
    if weight is None:
        raise ValueError(f"FrozenGCN: tensor {prefix}weight is missing")
    words(weight, form.in_channels).validate()
    expected = {
        "weight": weight.size(0) == form.out_channels,
        "weight_scale": (parts["weight_scale"] is None) == form.hidden_bits,
        "bias": parts["bias"] is None or not form.out_bits,
        "threshold": parts["threshold"] is None or form.out_bits,
        "x_threshold": parts["x_threshold"] is None or is_first,
        "x_gain": parts["x_gain"] is None or (is_first and form.uses_scale),
    }
    for name, present in expected.items():
        tensor = parts[name]
        width = form.in_channels if name.startswith("x_") else form.out_channels
        fits = (
            tensor is None
            or name == "weight"
            or (tensor.dtype == torch.float32 and tensor.shape == (width,))
        )
        if not (present and fits):
            raise ValueError(f"FrozenGCN: tensor {prefix}{name} does not fit the layer {form}")
