"""Scaled dot-product attention on ternary queries, keys and values, without projections."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn._checks import check_value
from bitgnn.nn.activation_quantizer import ActivationQuantizer, Kind
from bitgnn.nn.attention.attended_keys import attended_keys
from bitgnn.nn.attention.forward import Attended, AttentionForward, allowed_keys, score_factor
from bitgnn.nn.attention.ternary_products import ternary_context, ternary_scores
from bitgnn.quantize.operands import Operand

__all__ = ["BWTAAttention"]


class BWTAAttention(AttentionForward, nn.Module):
    r"""Attention whose two products are ternary by ternary and boolean by ternary.

    .. math:: P = \mathrm{softmax}(s_Q s_K c\; q k^\top), \quad Y = s_P s_V\; b(P / s_P)\, v

    q, k and v are the ternary integers of queries, keys and values, c is ``scale`` and b is 1 where
    :math:`P \ge 0.5 s_P`. The softmax is one of floats. In evaluation at level 1, b is decided as
    packed attention decides (:func:`bitgnn.nn.attention.attended_keys.attended_keys`: float64 sums
    in a fixed order), so that frozen forms give the same values bit for bit; in training, and at
    higher levels, by torch's float32 softmax, which differs where P is within rounding of the
    limit.

    A query that may attend to no key gives 0, also in full precision. Keys and values may have
    fewer heads than queries (grouped-query attention).

    Source: Ding et al., "BWTA: Accurate and Efficient Binarized Transformer by Algorithm-Hardware
    Co-design".

    Args:
        dropout: probability of dropping a weight in training.
        activation: ``"ternary"``, or ``"sign"`` for binary queries, keys and values.
        level: of all quantisers; None for attention in full precision.
        scale: c; None for :math:`1 / \sqrt{D}`.
        device: of the scales.

    Attributes:
        query_quantizer: of the queries, and so on for keys, values and probabilities.

    Raises:
        TypeError: ``level`` is no integer.
        ValueError: ``activation`` has none of its values, ``level`` is below 1, ``dropout`` is
            not in [0, 1), or ``scale`` is not positive and finite.
    """

    def __init__(
        self,
        dropout: float = 0.0,
        activation: Kind = "ternary",
        level: int | None = 1,
        scale: float | None = None,
        device: Any = None,
    ) -> None:
        super().__init__()
        check_value(
            activation in ("ternary", "sign"),
            lambda: f"BWTAAttention: activation must be 'ternary' or 'sign', got {activation!r}",
        )
        check_value(
            0.0 <= dropout < 1.0,
            lambda: f"BWTAAttention: dropout must be in [0, 1), got {dropout}",
        )
        check_value(
            scale is None or 0.0 < scale < math.inf,
            lambda: f"BWTAAttention: scale must be positive and finite, got {scale}",
        )
        self.dropout = dropout
        self.scale = scale
        self.query_quantizer = ActivationQuantizer(activation, level, device)
        self.key_quantizer = ActivationQuantizer(activation, level, device)
        self.value_quantizer = ActivationQuantizer(activation, level, device)
        self.probability_quantizer = ActivationQuantizer("bool", level, device)

    @property
    def device(self) -> torch.device:
        """Where its scales are."""
        return self.query_quantizer.scale.device

    @property
    def activation(self) -> Kind:
        """Kind of queries, keys and values."""
        return self.query_quantizer.kind

    @property
    def level(self) -> int | None:
        """Largest integer of every operand; None: nothing is quantised."""
        return self.query_quantizer.level

    @level.setter
    def level(self, level: int | None) -> None:
        for quantizer in self.children():
            if isinstance(quantizer, ActivationQuantizer):
                quantizer.level = level

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
        """The result of :meth:`forward` on checked shapes, and the weights."""
        allowed = allowed_keys(query.size(2), key.size(2), key_mask, allowed, causal, query.device)
        groups = query.size(1) // key.size(1)
        if groups > 1:
            key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
        if self.level is None:
            return self._attend_floats(query, key, value, allowed, need_weights, need_probabilities)
        with torch.autocast(query.device.type, enabled=False):
            attended = self._attend_levels(query, key, value, allowed, need_weights)
        return attended._replace(out=attended.out.to(query.dtype))

    def _attend_floats(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        allowed: Tensor | None,
        need_weights: bool,
        need_probabilities: bool,
    ) -> Attended:
        dropout = self.dropout if self.training else 0.0
        factor = score_factor(self.scale, query.size(3))
        if not (need_weights or need_probabilities):
            out = functional.scaled_dot_product_attention(
                query, key, value, allowed, dropout, scale=factor
            )
            if allowed is not None:
                # Back ends differ in what a row without keys gives.
                out = out.masked_fill(~allowed.any(-1, keepdim=True), 0.0)
            return Attended(out, None, None)
        probabilities = _softmax(factor * (query @ key.transpose(2, 3)), allowed)
        weights = functional.dropout(probabilities, dropout)
        return Attended(weights @ value, weights, probabilities)

    def _attend_levels(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        allowed: Tensor | None,
        need_weights: bool,
    ) -> Attended:
        q, k, v = (
            _stacked(quantizer.operand(x))
            for quantizer, x in (
                (self.query_quantizer, query),
                (self.key_quantizer, key),
                (self.value_quantizer, value),
            )
        )
        size = query.size(3)
        factor = score_factor(self.scale, size)
        scores, dot = ternary_scores(q, k, factor)
        probabilities = _softmax(scores, allowed)
        p = self.probability_quantizer.operand(probabilities, allowed)
        kept = None
        if not self.training and self.level == 1:
            # float64 products, as the python floats of frozen forms multiply.
            scale = q.scale.double() * k.scale.double() * factor
            p = p._replace(q=attended_keys(dot, allowed, scale, p.scale.double(), size))
        elif self.training and self.dropout > 0.0:
            kept = functional.dropout(torch.ones_like(p.q), self.dropout)
            p = p._replace(q=p.q * kept)
        out, weights = ternary_context(_stacked(p), v, kept, need_weights)
        return Attended(out, weights, probabilities)

    def extra_repr(self) -> str:
        """Activation, level and dropout."""
        return f"activation={self.activation!r}, level={self.level}, dropout={self.dropout}"


def _softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the keys that may be attended to; 0 where there are none."""
    if allowed is None:
        return scores.softmax(-1)
    hidden = ~allowed
    probabilities = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
    return probabilities.masked_fill(hidden, 0.0)


def _stacked(operand: Operand) -> Operand:
    """An operand whose integers are a stack of matrices."""
    return operand._replace(q=operand.q.flatten(0, 1))
