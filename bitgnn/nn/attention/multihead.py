"""Attention with its projections in BWTA: of a sequence to itself, and in the place of torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn._checks import name_type
from bitgnn.nn.attention.bwta_attention import BWTAAttention, visible
from bitgnn.nn.bwta_linear import ActivationQuantizer, BWTALinear, Kind, bwta_product
from bitgnn.nn.inputs.float_inputs import check_floats
from bitgnn.nn.multistage import set_level

NAME = "BWTAMultiheadAttention"
Rotary = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class _Levels:
    """Mixin of modules whose ``attention`` has the level of all their activations."""

    @property
    def level(self: Any) -> int | None:
        """Largest integer of every activation; None: nothing is quantised."""
        level: int | None = self.attention.level
        return level

    @level.setter
    def level(self: Any, level: int | None) -> None:
        set_level(self, level)


class BWTASelfAttention(_Levels, nn.Module):
    """Attention of a sequence to itself: three projections, :class:`BWTAAttention`, and a fourth.

    Args:
        hidden: features E of the sequence.
        heads: H, dividing E.
        kv_heads: heads of keys and values, dividing H; None for as many.
        bias: of the projections.
        dropout: probability of dropping an attention weight in training.
        activation: ``"ternary"``, or ``"sign"`` for binary activations.
        level: of all activations; None for full precision.
        device: of the parameters.
        dtype: of the parameters; scales are float32.

    Attributes:
        query: the :class:`BWTALinear` of the queries; so ``key``, ``value`` and ``out``.
        attention: the :class:`BWTAAttention`.

    Raises:
        TypeError: ``level``, ``hidden`` or a number of heads is no integer.
        ValueError: heads do not divide, or an option has none of its values.
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        activation: Kind = "ternary",
        level: int | None = 1,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        owner = "BWTASelfAttention"
        for name, number in (("hidden", hidden), ("heads", heads), ("kv_heads", kv_heads)):
            if not isinstance(number, int) or isinstance(number, bool):
                raise TypeError(f"{owner}: {name} must be an integer, got {name_type(number)}")
        if heads < 1 or hidden < 1 or hidden % heads:
            raise ValueError(f"{owner}: heads must divide hidden, got {heads} and {hidden}")
        if kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"{owner}: kv_heads must divide heads, got {kv_heads} and {heads}")
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, hidden // heads
        options: dict[str, Any] = {"activation": activation, "level": level}
        options |= {"bias": bias, "device": device, "dtype": dtype}
        self.query = BWTALinear(hidden, hidden, **options)
        self.key = BWTALinear(hidden, kv_heads * self.head_dim, **options)
        self.value = BWTALinear(hidden, kv_heads * self.head_dim, **options)
        self.attention = BWTAAttention(dropout, activation, level, device=device)
        self.out = BWTALinear(hidden, hidden, **options)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        return_probabilities: bool = False,
        rotary: Rotary | None = None,
    ) -> Any:
        """Attend.

        Args:
            x: ``[B, N, E]`` floats.
            mask: bool or 0 and 1 ``[B, N]``: 1 where there is something to attend to.
            causal: position i attends only to positions j <= i.
            return_probabilities: return the softmax ``[B, H, N, N]``, too.
            rotary: turns queries and keys ``[B, H, N, D]`` by their positions, before they are
                quantised.

        Returns:
            ``[B, N, E]`` of the dtype of ``x``; with ``return_probabilities`` a tuple.

        Raises:
            TypeError: ``x`` is no dense tensor of floats.
            ValueError: shapes or devices do not fit together.
        """
        check_floats("BWTASelfAttention", "x", x, self.query.weight.device)
        if x.dim() != 3:
            raise ValueError(
                f"BWTASelfAttention: x must be [B, N, {self.query.in_features}], "
                f"got {list(x.shape)}"
            )
        query, key, value = (
            layer(x).unflatten(2, (-1, self.head_dim)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        if rotary is not None:
            query, key = rotary(query, key)
        result = self.attention(
            query, key, value, mask, causal=causal, return_probabilities=return_probabilities
        )
        context, probabilities = result if return_probabilities else (result, None)
        out = self.out(context.transpose(1, 2).flatten(2))
        return (out, probabilities) if return_probabilities else out


class MultiheadForward:
    """Mixin of modules with torch's attributes that are called as its ``MultiheadAttention`` is.

    Between ``_project`` and ``out_proj`` their ``attention`` attends.
    """

    input_dtypes: tuple[torch.dtype, ...] | None = None
    out_proj: Any

    def forward(
        self: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend, as torch's forward.

        Queries are ``[N, B, E]``, ``[B, N, E]`` with ``batch_first``, or ``[N, E]``, keys and
        values likewise of length L. ``key_padding_mask``, ``[B, L]`` or ``[L]``, and ``attn_mask``,
        ``[N, L]`` or ``[B * H, N, L]``, are True (or -inf) where a key is hidden; ``is_causal``
        says that the latter is the causal one. Without ``need_weights`` frozen forms never write
        weights; ``average_attn_weights`` is for the mean of the heads' ones.

        Returns:
            The output, shaped as ``query``, and the boolean weights times their scale
            ``[B, N, L]`` (``[B, H, N, L]`` without the mean, without B for inputs without) or None.

        Raises:
            TypeError: queries, keys or values are no dense tensors of floats, or a mask is no
                tensor of bools or floats.
            ValueError: shapes or devices do not fit together, a mask of floats holds other values
                than 0 and -inf, or ``is_causal`` comes without ``attn_mask``.
        """
        for name, x in (("query", query), ("key", key), ("value", value)):
            check_floats(NAME, name, x, self.attention.device, self.input_dtypes)
        batched = query.dim() == 3
        q, k, v = (
            x.transpose(0, 1)
            if batched and x.dim() == 3 and not self.batch_first
            else (x if batched else x.unsqueeze(0))
            for x in (query, key, value)
        )
        if not q.dim() == k.dim() == v.dim() == 3:
            raise ValueError(
                f"{NAME}: query, key and value must have 2 or 3 dimensions alike, got "
                f"{list(query.shape)}, {list(key.shape)} and {list(value.shape)}"
            )
        batch, queries, keys = q.size(0), q.size(1), k.size(1)
        for name, x, wanted in (
            ("query", q, (batch, queries, self.embed_dim)),
            ("key", k, (batch, keys, self.kdim)),
            ("value", v, (batch, keys, self.vdim)),
        ):
            if x.shape != wanted:
                raise ValueError(
                    f"{NAME}: {name} must be {list(wanted)} (batch first), got {list(x.shape)}"
                )
        if is_causal and attn_mask is None:
            raise ValueError(f"{NAME}: is_causal needs the attn_mask that it speaks of, got None")
        stack = batch * self.num_heads, queries, keys
        padded = (batch, keys) if batched else (keys,)
        key_mask = _visible(key_padding_mask, "key_padding_mask", padded)
        if key_mask is not None and not batched:
            key_mask = key_mask.unsqueeze(0)
        allowed = _visible(attn_mask, "attn_mask", stack[1:], stack)
        if allowed is not None and allowed.dim() == 3:
            allowed = allowed.view(batch, self.num_heads, queries, keys)
        q, k, v = self._project(q, k, v)
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (
                torch.cat([x, bias.to(x.dtype).expand(batch, -1, -1)], 1)
                for x, bias in ((k, self.bias_k), (v, self.bias_v))
            )
        if self.add_zero_attn:
            k, v = (functional.pad(x, (0, 0, 0, 1)) for x in (k, v))
        more = k.size(1) - keys
        if more:
            key_mask, allowed = (
                None if mask is None else functional.pad(mask, (0, more), value=True)
                for mask in (key_mask, allowed)
            )
        # The hint is believed, as torch does; a mask proper is slower on bits.
        causal = is_causal and not more and queries == keys
        q, k, v = (
            x.view(batch, x.size(1), self.num_heads, self.head_dim).transpose(1, 2)
            for x in (q, k, v)
        )
        out, weights, _ = self.attention.attend(
            q, k, v, key_mask, None if causal else allowed, causal, need_weights
        )
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        weights = weights if need_weights else None
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), weights


def _visible(mask: Tensor | None, name: str, *shapes: tuple[int, ...]) -> Tensor | None:
    """Keys that a mask of torch's lets through: False in a bool mask, 0 in one of 0 and -inf."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or (mask.dtype != torch.bool and not mask.is_floating_point()):
        raise TypeError(
            f"{NAME}: {name} must be a tensor of bools or floats, got {name_type(mask)}"
        )
    if mask.shape not in shapes:
        wanted = " or ".join(str([*shape]) for shape in shapes)
        raise ValueError(f"{NAME}: {name} must be {wanted}, got {list(mask.shape)}")
    if mask.dtype == torch.bool:
        return ~mask
    message = f"{NAME}: {name} must hold bools, or 0 and -inf: ternary scores take no bias"
    return visible(mask, -torch.inf, message)


class BWTAMultiheadAttention(_Levels, MultiheadForward, nn.MultiheadAttention):
    """torch's ``MultiheadAttention`` in BWTA: constructor, forward and parameters are torch's.

    The projections are those of :class:`BWTALinear`, each of the three with its own mean and scale
    of weights and its own scale of input; between them is :class:`BWTAAttention`. A query that may
    attend to no key gets the output of zeros, not NaN.

    Arguments up to ``dtype`` are torch's; scales are float32 whatever it is. ``activation`` is
    ``"ternary"``, or ``"sign"`` for binary activations; ``level`` is that of all activations, None
    for full precision.

    Attributes:
        attention: the :class:`BWTAAttention`.
        query_input_quantizer: of the input of the queries' projection; so of ``key`` and ``value``.

    Raises:
        TypeError: ``level`` is no integer.
        ValueError: ``num_heads`` does not divide, or an option has none of its values.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        activation: Kind = "ternary",
        level: int | None = 1,
    ) -> None:
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ValueError(
                f"{NAME}: num_heads must divide embed_dim, got {num_heads} and {embed_dim}"
            )
        super().__init__(
            embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim,
            batch_first, device, dtype,
        )  # fmt: skip
        # TransformerEncoderLayer would compute attention itself, past this class, were it True.
        self._qkv_same_embed_dim = False
        initial = self.out_proj.state_dict()
        self.out_proj = BWTALinear(
            embed_dim, embed_dim, bias, device, dtype, activation=activation, level=level
        )
        self.out_proj.load_state_dict(initial)
        self.attention = BWTAAttention(dropout, activation, level, device=device)
        self.query_input_quantizer = ActivationQuantizer(activation, level, device)
        self.key_input_quantizer = ActivationQuantizer(activation, level, device)
        self.value_input_quantizer = ActivationQuantizer(activation, level, device)

    def projections(self) -> list[tuple[Tensor, Tensor | None, ActivationQuantizer]]:
        """Weight, bias and input quantiser of the projections of queries, keys and values."""
        weights = (
            (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            if self.in_proj_weight is None
            else self.in_proj_weight.chunk(3)
        )
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        quantizers = [
            getattr(self, f"{name}_input_quantizer") for name in ("query", "key", "value")
        ]
        return list(zip(weights, biases, quantizers, strict=True))

    def _project(self, *inputs: Tensor) -> list[Tensor]:
        return [
            functional.linear(x, weight, bias)
            if self.level is None
            else bwta_product(x, weight, bias, quantizer)
            for x, (weight, bias, quantizer) in zip(inputs, self.projections(), strict=True)
        ]
