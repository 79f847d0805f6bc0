"""One layer of a frozen GCN: a dense binary product, then an aggregation, one operator each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.nn import LayerPrecision

__all__ = ["BUFFERS", "FrozenGCNLayer", "LayerForm", "check_parts", "layer_forms"]

# Bound once: resolving an overload by name costs as much as a small kernel.
_pack = torch.ops.bitgnn.pack.default
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
    weight_columns: Tensor
    weight_half_sum: Tensor

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
        return self.aggregate(self.transform(x, is_bits, scale), adjacency)

    # The methods below read buffers from their dict: as attributes each costs as much as the
    # arguments of an operator call.

    def transform(self, x: Tensor, is_bits: bool, scale: Tensor | None) -> Tensor:
        """The dense product of the layer; arguments as in :meth:`forward`."""
        form, held = self.form, self._buffers
        weight = held["weight"]
        y: Tensor
        if form.hidden_bits and is_bits:
            y = _bmm_bbb(x, weight, form.in_channels)
        elif form.hidden_bits:
            y = _bmm_fbb(x, weight, x_threshold=held["x_threshold"], scale=False)
        elif is_bits:
            y = _bmm_bbf(x, weight, form.in_channels, scale, held["weight_scale"])
        elif form.uses_scale:
            y = _bmm_fbf(x, weight, held["weight_scale"], None, held["x_threshold"], held["x_gain"])
        else:
            words = _pack(x, held["x_threshold"])
            y = _bmm_bbf(words, weight, form.in_channels, None, held["weight_scale"])
        return y

    def transform_pattern(self, x: BitAdjacency) -> Tensor:
        """The dense product for input given as the pattern of its set bits.

        ``sum_k x[k] w[o, k] >= 0`` is ``sum_{k set} w[o, k] >= sum_k w[o, k] / 2``: an aggregation
        of weight columns with a threshold.
        """
        held = self._buffers
        if "weight_columns" not in held:
            self._make_weight_columns()
        columns, half = held["weight_columns"], held["weight_half_sum"]
        y: Tensor = _bspmm_bbb(columns, self.form.out_channels, x.rowptr, x.indices, None, half)
        return y

    def _make_weight_columns(self) -> None:
        """Derive what :meth:`transform_pattern` reads; not part of a checkpoint."""
        weight = BitTensor(self.weight, self.form.in_channels).to_float()
        self.register_buffer("weight_columns", _pack(weight.t().contiguous()), persistent=False)
        self.register_buffer("weight_half_sum", weight.sum(1) / 2, persistent=False)

    def aggregate(self, y: Tensor, adjacency: BitAdjacency) -> Tensor:
        """The aggregation of the layer: words or floats of the product in, as the form says."""
        form, held = self.form, self._buffers
        rowptr, indices, row = adjacency.rowptr, adjacency.indices, adjacency.row
        out: Tensor
        if form.hidden_bits and form.out_bits:
            out = _bspmm_bbb(y, form.out_channels, rowptr, indices, row, held["threshold"])
        elif form.hidden_bits:
            out = _bspmm_bbf(y, form.out_channels, rowptr, indices, row, held["bias"])
        elif form.out_bits:
            out = _bspmm_fbb(y, rowptr, indices, row, adjacency.col, held["threshold"])
        else:
            out = _bspmm_fbf(y, rowptr, indices, row, adjacency.col, held["bias"])
        return out

    def extra_repr(self) -> str:
        """Widths and boundaries."""
        form = self.form
        middle, end = ("bits" if b else "floats" for b in (form.hidden_bits, form.out_bits))
        return f"{form.in_channels}, {form.out_channels}, hidden={middle}, out={end}"


def check_parts(
    form: LayerForm, parts: Mapping[str, Tensor | None], prefix: str, is_first: bool
) -> None:
    """Check that a layer's tensors have the presence, dtype and shape its form needs.

    Raises:
        ValueError: a tensor is missing, superfluous or of the wrong dtype or shape.
    """
    weight = parts["weight"]
    if weight is None:
        raise ValueError(f"FrozenGCN: tensor {prefix}weight is missing")
    BitTensor(weight, form.in_channels).validate()  # dtype, shape and clear padding
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
