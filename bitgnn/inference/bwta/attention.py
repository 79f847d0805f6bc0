"""BWTAAttention on bits, without a matrix of scores where masks allow."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn._checks import check_value
from bitgnn.bits.ternary import QUANTISED
from bitgnn.inference.bwta.linear import FrozenBWTALayer, checked_scale
from bitgnn.nn.attention.bwta_attention import (
    Attended,
    AttentionForward,
    BWTAAttention,
    allowed_keys,
    score_factor,
)
from bitgnn.nn.attention.products import attended_keys

SCALES = ("query_scale", "key_scale", "value_scale", "probability_scale")


class FrozenBWTAAttention(AttentionForward, FrozenBWTALayer):
    """Attention of floats that are made ternary on the way in, called as ``BWTAAttention`` is.

    With masks of keys and causal ones ``attention_ternary_floats`` packs and goes over the keys
    without writing scores. Other masks, weights and probabilities take a matrix of scores; the bits
    are decided alike, and are those of :class:`bitgnn.nn.BWTAAttention` in evaluation.

    Args:
        tensors: 0-d float32 ``query_scale``, ``key_scale``, ``value_scale`` and
            ``probability_scale``.
        factor: of the scores; None for ``1 / sqrt(D)``.

    Raises:
        ValueError: a scale is missing or not positive and finite.
    """

    kind = "attention"
    activation = "ternary"
    input_dtypes = QUANTISED
    query_scale: Tensor
    key_scale: Tensor
    value_scale: Tensor
    probability_scale: Tensor

    def __init__(self, tensors: dict[str, Tensor], factor: float | None = None) -> None:
        super().__init__()
        for name in SCALES:
            self.register_buffer(name, checked_scale(tensors, name, "FrozenBWTAAttention"))
        self.factor = factor
        self._read_scales()
        self.register_buffer("_one", torch.ones((), device=self.device), persistent=False)

    def _read_scales(self) -> None:
        """Keep the scales as numbers, which the operator takes without waiting for a GPU."""
        query, key, value, probability = (float(getattr(self, name)) for name in SCALES)
        self._scores, self._probability, self._out = query * key, probability, probability * value

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """As torch's; the numbers follow the tensors."""
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._read_scales()

    @property
    def device(self) -> torch.device:
        """Where its scales are."""
        return self.query_scale.device

    @classmethod
    def from_layer(cls, name: str, layer: BWTAAttention) -> FrozenBWTAAttention:
        """The frozen form of a trained layer.

        Args:
            name: of the layer, for messages.
            layer: trained.

        Raises:
            ValueError: activations are of another kind, a scale is not set or not positive, or the
                level is not 1.
        """
        check_value(
            layer.activation == cls.activation,
            lambda: f"{cls.__name__}: {name} attends with kind {layer.activation!r}",
        )
        quantizers = {
            "query_scale": layer.query_quantizer,
            "key_scale": layer.key_quantizer,
            "value_scale": layer.value_quantizer,
            "probability_scale": layer.probability_quantizer,
        }
        scales = {key: q.frozen_scale(f"{name} ({key})") for key, q in quantizers.items()}
        return cls(scales, layer.scale)

    @classmethod
    def from_tensors(
        cls, description: dict[str, Any], tensors: dict[str, Tensor]
    ) -> FrozenBWTAAttention:
        """The inverse of :meth:`description` and ``state_dict``."""
        return cls(tensors, description["factor"])

    def description(self) -> dict[str, Any]:
        """Arguments beside the tensors."""
        return {"factor": self.factor, "activation": self.activation}

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None = None,
        allowed: Tensor | None = None,
        causal: bool = False,
        need_weights: bool = False,
        need_probabilities: bool = False,
    ) -> Attended:
        """What ``forward`` gives, on checked shapes, and the weights where they are needed."""
        operators = torch.ops.bitgnn
        size, length = query.size(3), key.size(2)
        # The order of factors is that of the layer in evaluation, whose rounding decides bits.
        scale = self._scores * score_factor(self.factor, size)
        scales = self.query_scale, self.key_scale, self.value_scale
        if allowed is not None or need_weights or need_probabilities:
            q = operators.pack_ternary(query, self.query_scale)
            k = operators.pack_ternary(key, self.key_scale)
            v = operators.pack_ternary_columns(value, self.value_scale)
            keys = allowed_keys(query.size(2), length, key_mask, allowed, causal, query.device)
            groups = query.size(1) // key.size(1)
            return self._attend_matrix(q, *_grouped(k, v, groups), keys, scale, query, length)
        mask = None
        if key_mask is not None:
            mask = operators.pack(key_mask.float() - 0.5)
        numbers = scale, self._probability, self._out
        out = operators.attention_ternary_floats(
            query, key, value, *scales, *numbers, mask, causal, query.dtype
        )
        return Attended(out, None, None)

    def _attend_matrix(
        self,
        q: tuple[Tensor, Tensor],
        k: tuple[Tensor, Tensor],
        v: tuple[Tensor, Tensor],
        allowed: Tensor | None,
        scale: float,
        query: Tensor,
        length: int,
    ) -> Attended:
        """The same with a matrix of scores."""
        operators = torch.ops.bitgnn
        size = query.size(3)
        dot = operators.matmul_ttf(*q, *k, size, None, torch.int32).float()
        factor, limit = (
            torch.full((), number, dtype=torch.float64, device=dot.device)
            for number in (scale, self._probability)
        )
        bits = attended_keys(dot, allowed, factor, limit, size)
        a = operators.pack_bool(bits, self._one)
        out_scale = self.probability_scale * self.value_scale
        out = operators.matmul_btf(*a, *v, length, out_scale, query.dtype)
        scores = scale * dot if allowed is None else (scale * dot).masked_fill(~allowed, -torch.inf)
        probabilities = scores.softmax(-1).nan_to_num(nan=0.0)
        return Attended(out, self.probability_scale * bits, probabilities)

    def extra_repr(self) -> str:
        """The factor of the scores."""
        return "" if self.factor is None else f"factor={self.factor}"


def _grouped(
    k: tuple[Tensor, Tensor], v: tuple[Tensor, Tensor], groups: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Packed keys and values, one for each head of the queries."""
    if groups == 1:
        return k, v
    first, second = (
        (words.repeat_interleave(groups, 1), counts.repeat_interleave(groups, 1))
        for words, counts in (k, v)
    )
    return first, second


class FrozenSignAttention(FrozenBWTAAttention):
    """Attention of the signs of queries, keys and values, called as ``BWTAAttention`` is.

    Signs are packed as ternary rows; what is not negative is +1, NaN is -1. Arguments and errors
    are those of :class:`FrozenBWTAAttention`.
    """

    kind = "sign_attention"
    activation = "sign"

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> Attended:
        """As :meth:`FrozenBWTAAttention.attend`, of the signs."""
        # Beyond half of any scale, in any type.
        query, key, value = (
            torch.where(x >= 0, x.new_full((), torch.inf), x.new_full((), -torch.inf))
            for x in (query, key, value)
        )
        return super().attend(query, key, value, *args, **kwargs)


def frozen_attention(name: str, layer: BWTAAttention) -> FrozenBWTAAttention:
    """The frozen form of a trained layer, of either activation.

    Raises:
        ValueError: a scale is not set or not positive, or the level is not 1.
    """
    form = FrozenSignAttention if layer.activation == "sign" else FrozenBWTAAttention
    return form.from_layer(name, layer)


def attention_from_tensors(
    description: dict[str, Any], tensors: dict[str, Tensor]
) -> FrozenBWTAAttention:
    """The inverse of ``description()`` and ``state_dict()``, of either activation."""
    signs = description.get("activation") == "sign"
    form = FrozenSignAttention if signs else FrozenBWTAAttention
    return form.from_tensors(description, tensors)
