"""Attention on ternary queries, keys and values: checks, masks, and the trained layer."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn._checks import name_type
from bitgnn.nn.attention.products import attended_keys, ternary_context, ternary_scores
from bitgnn.nn.bwta_linear import ActivationQuantizer, Kind
from bitgnn.nn.inputs.float_inputs import check_floats
from bitgnn.nn.multistage import set_level


class Attended(NamedTuple):
    """Attention's result ``[B, H, N, D]``, and ``[B, H, N, L]`` where they are needed.

    ``weights`` are what values were multiplied by, ``probabilities`` the softmax they come from.
    """

    out: Tensor
    weights: Tensor | None
    probabilities: Tensor | None


def allowed_keys(
    queries: int,
    keys: int,
    key_mask: Tensor | None,
    allowed: Tensor | None,
    causal: bool,
    device: torch.device,
) -> Tensor | None:
    """Keys that queries may attend to, bool that broadcasts to ``[B, H, N, L]``; None for all.

    The arguments are those of :meth:`AttentionForward.forward`.
    """
    if causal:
        past = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
        allowed = past if allowed is None else allowed & past
    if key_mask is not None:
        seen = key_mask.bool()[:, None, None, :]
        allowed = seen if allowed is None else allowed & seen
    return allowed


def visible(mask: Tensor, hidden: float, message: str) -> Tensor:
    """True where a mask of floats is 0; ValueError ``message`` if others exceed ``hidden``.

    Its values are looked at where nothing is compiled or recorded.
    """
    seen = mask == 0
    capturing = mask.is_cuda and torch.cuda.is_current_stream_capturing()
    is_known = not (torch.compiler.is_compiling() or capturing)
    if is_known and not (seen | (mask <= hidden)).all():
        raise ValueError(message)
    return seen


def score_factor(factor: float | None, size: int) -> float:
    """Factor of the scores of heads of ``size`` features: ``factor``, or 1 / sqrt(D).

    One expression for training and bits: its last bit may decide one of attention's.
    """
    return 1.0 / math.sqrt(size) if factor is None else factor


class AttentionForward:
    """Mixin of modules that attend: :meth:`forward` checks, their ``attend`` does.

    They have the ``device`` of their scales, and the ``input_dtypes`` they take, None for all.
    """

    input_dtypes: tuple[torch.dtype, ...] | None = None

    def forward(
        self: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None = None,
        *,
        allowed: Tensor | None = None,
        causal: bool = False,
        return_probabilities: bool = False,
    ) -> Any:
        """Attend.

        Args:
            query: ``[B, H, N, D]`` floats.
            key: ``[B, Hk, L, D]``, Hk dividing H.
            value: ``[B, Hk, L, D]``.
            key_mask: bool or 0 and 1 ``[B, L]``: keys that may be attended to; None for all.
            allowed: bool that broadcasts to ``[B, H, N, L]``, in addition.
            causal: query i attends only to keys j <= i + L - N.
            return_probabilities: return the softmax ``[B, H, N, L]`` as well as the output.

        Returns:
            ``[B, H, N, D]`` of the dtype of ``query``; with ``return_probabilities`` a tuple.

        Raises:
            TypeError: queries, keys or values are no dense tensors of floats, ``key_mask`` is no
                tensor or ``allowed`` is no bool one.
            ValueError: shapes or devices do not fit together.
        """
        self.check(query, key, value, key_mask, allowed)
        attended = self.attend(
            query, key, value, key_mask, allowed, causal, need_probabilities=return_probabilities
        )
        return (attended.out, attended.probabilities) if return_probabilities else attended.out

    def check(
        self: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None,
        allowed: Tensor | None,
    ) -> None:
        """Check the arguments of :meth:`forward`, and raise its errors."""
        name = type(self).__name__
        for what, x in (("query", query), ("key", key), ("value", value)):
            check_floats(name, what, x, self.device, self.input_dtypes)
        if not isinstance(key_mask, Tensor | None):
            raise TypeError(f"{name}: key_mask must be a tensor, got {name_type(key_mask)}")
        if allowed is not None and (not isinstance(allowed, Tensor) or allowed.dtype != torch.bool):
            raise TypeError(f"{name}: allowed must be a bool tensor, got {name_type(allowed)}")
        fits = query.dim() == key.dim() == 4 and key.shape == value.shape
        if not fits or query.size(0) != key.size(0) or query.size(3) != key.size(3):
            raise ValueError(
                f"{name}: query must be [B, H, N, D], key and value [B, Hk, L, D], got "
                f"{list(query.shape)}, {list(key.shape)} and {list(value.shape)}"
            )
        heads, of_keys = query.size(1), key.size(1)
        if of_keys == 0 or heads % of_keys:
            got = f"{of_keys} and {heads}"
            raise ValueError(f"{name}: the heads of keys must divide those of queries, got {got}")
        wanted = [query.size(0), key.size(2)]
        if key_mask is not None and list(key_mask.shape) != wanted:
            raise ValueError(f"{name}: key_mask must be {wanted}, got {list(key_mask.shape)}")
        if allowed is None:
            return
        wanted = [*query.shape[:3], key.size(2)]
        sizes = zip(reversed(allowed.shape), reversed(wanted), strict=False)
        if allowed.dim() > len(wanted) or any(given not in (1, size) for given, size in sizes):
            got = str([*allowed.shape])
            raise ValueError(f"{name}: allowed must broadcast to {wanted}, got {got}")


class BWTAAttention(AttentionForward, nn.Module):
    r"""Attention whose two products are ternary by ternary and boolean by ternary.

    .. math:: P = \mathrm{softmax}(s_Q s_K c\; q k^\top), \quad Y = s_P s_V\; b(P / s_P)\, v

    q, k and v are the ternary integers of queries, keys and values, c is ``scale`` and b is 1 where
    :math:`P \ge 0.5 s_P`. The softmax is one of floats. In evaluation at level 1, b is decided as
    packed attention decides (float64 sums in a fixed order), so that frozen forms give the same
    values bit for bit; in training, and at higher levels, by torch's float32 softmax, which differs
    where P is within rounding of the limit.

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
        if activation not in ("ternary", "sign"):
            raise ValueError(
                f"BWTAAttention: activation must be 'ternary' or 'sign', got {activation!r}"
            )
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"BWTAAttention: dropout must be in [0, 1), got {dropout}")
        if scale is not None and not 0.0 < scale < math.inf:
            raise ValueError(f"BWTAAttention: scale must be positive and finite, got {scale}")
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
        set_level(self, level)

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
            needs = need_weights or need_probabilities
            return self._attend_floats(query, key, value, allowed, needs)
        with torch.autocast(query.device.type, enabled=False):
            attended = self._attend_levels(query, key, value, allowed, need_weights)
        return attended._replace(out=attended.out.to(query.dtype))

    def _attend_floats(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, needs: bool
    ) -> Attended:
        dropout = self.dropout if self.training else 0.0
        factor = score_factor(self.scale, query.size(3))
        if needs:
            probabilities = _softmax(factor * (query @ key.transpose(2, 3)), allowed)
            weights = functional.dropout(probabilities, dropout)
            return Attended(weights @ value, weights, probabilities)
        out = functional.scaled_dot_product_attention(
            query, key, value, allowed, dropout, scale=factor
        )
        if allowed is not None:
            # Back ends differ in what a row without keys gives.
            out = out.masked_fill(~allowed.any(-1, keepdim=True), 0.0)
        return Attended(out, None, None)

    def _attend_levels(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, need_weights: bool
    ) -> Attended:
        q, k, v = (
            quantizer.operand(x)
            for quantizer, x in (
                (self.query_quantizer, query),
                (self.key_quantizer, key),
                (self.value_quantizer, value),
            )
        )
        # Products are those of stacks of matrices.
        q, k, v = (operand._replace(q=operand.q.flatten(0, 1)) for operand in (q, k, v))
        size = query.size(3)
        factor = score_factor(self.scale, size)
        scores, dot = ternary_scores(q, k, factor)
        probabilities = _softmax(scores, allowed)
        p = self.probability_quantizer.operand(probabilities, allowed)
        bits, kept = p.q, None
        if not self.training and self.level == 1:
            # float64 products, as the python floats of frozen forms multiply.
            scale = q.scale.double() * k.scale.double() * factor
            bits = attended_keys(dot, allowed, scale, p.scale.double(), size)
        elif self.training and self.dropout > 0.0:
            kept = functional.dropout(torch.ones_like(bits), self.dropout)
            bits = bits * kept
        p = p._replace(q=bits.flatten(0, 1))
        out, weights = ternary_context(p, v, kept, need_weights)
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
