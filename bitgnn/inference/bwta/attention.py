"""BWTA attention on bits: between projections, and as torch's multi-head attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits.ternary import QUANTISED
from bitgnn.inference.bwta.linear import FrozenBWTALayer, FrozenBWTALinear, checked_scale, inside
from bitgnn.nn.attention.bwta_attention import (
    Attended,
    AttentionForward,
    BWTAAttention,
    allowed_keys,
    score_factor,
)
from bitgnn.nn.attention.multihead import BWTAMultiheadAttention, MultiheadForward
from bitgnn.nn.attention.products import attended_keys

SCALES = ("query_scale", "key_scale", "value_scale", "probability_scale")
PROJECTIONS = ("query_proj", "key_proj", "value_proj", "out_proj")
KINDS = {"ternary": "attention", "sign": "sign_attention"}
"""Names in checkpoints, by activation."""


class FrozenBWTAAttention(AttentionForward, FrozenBWTALayer):
    """Attention of floats that become ternary, or signs, on the way in.

    It is called as ``BWTAAttention`` is. With masks of keys and causal ones
    ``attention_ternary_floats`` packs and goes over the keys without writing scores. Other masks,
    weights and probabilities take a matrix of scores; the bits are decided alike, and are those of
    :class:`bitgnn.nn.BWTAAttention` in evaluation. Signs are packed as ternary rows; what is not
    negative is +1, NaN is -1.

    ``tensors`` are 0-d float32 ``query_scale``, ``key_scale``, ``value_scale`` and
    ``probability_scale``; ``factor`` is that of the scores, None for ``1 / sqrt(D)``.

    Raises:
        ValueError: a scale is missing or not positive and finite, or ``activation`` is neither.
    """

    settings = ("factor", "activation")
    input_dtypes = QUANTISED
    query_scale: Tensor
    key_scale: Tensor
    value_scale: Tensor
    probability_scale: Tensor

    def __init__(
        self, tensors: dict[str, Tensor], factor: float | None = None, activation: str = "ternary"
    ) -> None:
        super().__init__()
        if activation not in KINDS:
            raise ValueError(
                f"FrozenBWTAAttention: activation must be one of {[*KINDS]}, got {activation!r}"
            )
        for name in SCALES:
            self.register_buffer(name, checked_scale(tensors, name, "FrozenBWTAAttention"))
        self.factor, self.activation, self.kind = factor, activation, KINDS[activation]
        self.settle()
        self.register_buffer(
            "_one", torch.ones((), device=self.device, dtype=torch.float32), persistent=False
        )

    def settle(self) -> None:
        """Keep the scales as numbers, which the operator takes without waiting for a GPU."""
        query, key, value, probability = (float(getattr(self, name)) for name in SCALES)
        self._scores, self._probability, self._out = query * key, probability, probability * value

    @property
    def device(self) -> torch.device:
        """Where its scales are."""
        return self.query_scale.device

    @classmethod
    def from_layer(cls, name: str, layer: BWTAAttention) -> FrozenBWTAAttention:
        """The frozen form of a trained layer, or a ValueError that names it."""
        quantizers = (
            layer.query_quantizer,
            layer.key_quantizer,
            layer.value_quantizer,
            layer.probability_quantizer,
        )
        scales = {
            key: quantizer.frozen_scale(f"{name} ({key})")
            for key, quantizer in zip(SCALES, quantizers, strict=True)
        }
        return cls(scales, layer.scale, layer.activation)

    @classmethod
    def from_tensors(
        cls, description: dict[str, Any], tensors: dict[str, Tensor]
    ) -> FrozenBWTAAttention:
        """The inverse of :meth:`description` and ``state_dict``."""
        return cls(tensors, description["factor"], description.get("activation", "ternary"))

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
        """Result of ``forward`` on checked shapes, and the weights where they are needed."""
        operators = torch.ops.bitgnn
        if self.activation == "sign":
            # Beyond half of any scale, in any type.
            query, key, value = (
                torch.where(x >= 0, x.new_full((), torch.inf), x.new_full((), -torch.inf))
                for x in (query, key, value)
            )
        size, length = query.size(3), key.size(2)
        # The order of factors is that of the layer in evaluation, whose rounding decides bits.
        scale = self._scores * score_factor(self.factor, size)
        if allowed is None and not (need_weights or need_probabilities):
            mask = None if key_mask is None else operators.pack(key_mask.float() - 0.5)
            out = operators.attention_ternary_floats(
                query, key, value, self.query_scale, self.key_scale, self.value_scale, scale,
                self._probability, self._out, mask, causal, query.dtype,
            )  # fmt: skip
            return Attended(out, None, None)
        q = operators.pack_ternary(query, self.query_scale)
        k = operators.pack_ternary(key, self.key_scale)
        v = operators.pack_ternary_columns(value, self.value_scale)
        groups = query.size(1) // key.size(1)
        if groups > 1:
            k, v = ([part.repeat_interleave(groups, 1) for part in packed] for packed in (k, v))
        allowed = allowed_keys(query.size(2), length, key_mask, allowed, causal, query.device)
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


class FrozenBWTAMultiheadAttention(MultiheadForward, FrozenBWTALayer):
    """Four packed projections and attention on bits, called as torch's ``MultiheadAttention`` is.

    ``parts`` are ``query_proj``, ``key_proj``, ``value_proj``, ``out_proj`` and ``attention``;
    ``bias_k`` and ``bias_v`` are the appended key and value ``[1, 1, E]`` or None.
    """

    kind = "multihead_attention"
    settings = ("num_heads", "batch_first", "add_zero_attn")
    input_dtypes = QUANTISED
    query_proj: FrozenBWTALinear
    key_proj: FrozenBWTALinear
    value_proj: FrozenBWTALinear

    def __init__(
        self,
        parts: dict[str, Any],
        num_heads: int,
        batch_first: bool,
        add_zero_attn: bool,
        bias_k: Tensor | None,
        bias_v: Tensor | None,
    ) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.embed_dim, self.kdim, self.vdim = (parts[n].in_features for n in PROJECTIONS[:3])
        self.num_heads, self.head_dim = num_heads, self.embed_dim // num_heads
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        self.register_buffer("bias_k", bias_k)
        self.register_buffer("bias_v", bias_v)
        # Read by torch's TransformerEncoderLayer, which must call this module.
        self._qkv_same_embed_dim = False
        self.in_proj_bias = None

    @classmethod
    def from_layer(cls, name: str, layer: BWTAMultiheadAttention) -> FrozenBWTAMultiheadAttention:
        """The frozen form of a trained layer, or a ValueError that names it."""
        parts: dict[str, Any] = {
            part: FrozenBWTALinear.from_parts(f"{name}.{part}", *operands)
            for part, operands in zip(PROJECTIONS[:3], layer.projections(), strict=True)
        }
        parts["out_proj"] = FrozenBWTALinear.from_layer(f"{name}.out_proj", layer.out_proj)
        parts["attention"] = FrozenBWTAAttention.from_layer(f"{name}.attention", layer.attention)
        key, value = (
            None if bias is None else bias.detach().clone() for bias in (layer.bias_k, layer.bias_v)
        )
        return cls(parts, layer.num_heads, layer.batch_first, layer.add_zero_attn, key, value)

    @classmethod
    def from_tensors(
        cls, description: dict[str, Any], tensors: dict[str, Tensor]
    ) -> FrozenBWTAMultiheadAttention:
        """The inverse of :meth:`description` and ``state_dict``."""
        forms: dict[str, Any] = dict.fromkeys(PROJECTIONS, FrozenBWTALinear)
        parts = {
            name: form.from_tensors(description["parts"][name], inside(tensors, name))
            for name, form in (forms | {"attention": FrozenBWTAAttention}).items()
        }
        settings = {name: description[name] for name in cls.settings}
        return cls(parts, **settings, bias_k=tensors.get("bias_k"), bias_v=tensors.get("bias_v"))

    def description(self) -> dict[str, Any]:
        """Arguments beside the tensors."""
        parts: Any = dict(self.named_children())
        described = {name: part.description() for name, part in parts.items()}
        return super().description() | {"parts": described}

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.query_proj(query), self.key_proj(key), self.value_proj(value)

    def extra_repr(self) -> str:
        """Heads."""
        return f"num_heads={self.num_heads}, batch_first={self.batch_first}"
