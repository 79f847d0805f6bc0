"""torch's MultiheadAttention with binary projections and ternary products; its forward on bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.nn.activation_quantizer import ActivationQuantizer, Kind
from bitgnn.nn.attention.bwta_attention import BWTAAttention, visible
from bitgnn.nn.bwta_linear import BWTALinear, bwta_product
from bitgnn.nn.float_inputs import check_floats
from bitgnn.nn.multistage import set_level

NAME = "BWTAMultiheadAttention"


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

        Args:
            query: ``[N, B, E]``, ``[B, N, E]`` with ``batch_first``, or ``[N, E]``.
            key: likewise, of length L.
            value: likewise.
            key_padding_mask: ``[B, L]`` or ``[L]``: True (or -inf) where a key is hidden.
            need_weights: return the weights, too; without, frozen forms never write them.
            attn_mask: ``[N, L]`` or ``[B * H, N, L]``: True (or -inf) where a key is hidden.
            average_attn_weights: mean of the heads' weights.
            is_causal: says that ``attn_mask`` is the causal one.

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
        check_value(
            q.dim() == k.dim() == v.dim() == 3,
            lambda: (
                f"{NAME}: query, key and value must have 2 or 3 dimensions alike, got "
                f"{list(query.shape)}, {list(key.shape)} and {list(value.shape)}"
            ),
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
        check_value(
            not is_causal or attn_mask is not None,
            lambda: f"{NAME}: is_causal needs the attn_mask that it speaks of, got None",
        )
        key_mask = _visible(key_padding_mask, "key_padding_mask")
        if key_mask is not None and not batched:
            key_mask = key_mask.unsqueeze(0)
        allowed = _visible(attn_mask, "attn_mask")
        stack = batch * self.num_heads, queries, keys
        if allowed is not None and allowed.shape not in (stack[1:], stack):
            raise ValueError(
                f"{NAME}: attn_mask must be {[queries, keys]} or {list(stack)}, "
                f"got {list(allowed.shape)}"
            )
        if key_mask is not None and key_mask.shape != (batch, keys):
            raise ValueError(
                f"{NAME}: key_padding_mask must be {[batch, keys]}, got {list(key_mask.shape)}"
            )
        if allowed is not None and allowed.dim() == 3:
            allowed = allowed.view(batch, self.num_heads, queries, keys)
        attended = self._attend_projected(
            *self._project(q, k, v), key_mask, allowed, is_causal, need_weights
        )
        out, weights = self.out_proj(attended.out.transpose(1, 2).flatten(2)), None
        if need_weights:
            weights = attended.weights.mean(1) if average_attn_weights else attended.weights
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), weights

    def _attend_projected(
        self: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None,
        allowed: Tensor | None,
        is_causal: bool,
        need_weights: bool,
    ) -> Any:
        """Attention of projections ``[B, N, E]``, with the appended keys and values behind them."""
        length = key.size(1)
        if self.bias_k is not None and self.bias_v is not None:
            key, value = (
                torch.cat([x, bias.to(x.dtype).expand(x.size(0), -1, -1)], 1)
                for x, bias in ((key, self.bias_k), (value, self.bias_v))
            )
        if self.add_zero_attn:
            key, value = (functional.pad(x, (0, 0, 0, 1)) for x in (key, value))
        more = key.size(1) - length
        if more:
            key_mask, allowed = (
                None if mask is None else functional.pad(mask, (0, more), value=True)
                for mask in (key_mask, allowed)
            )
        # The hint is believed, as torch does; a mask proper is slower on bits.
        causal = is_causal and not more and query.size(1) == length
        query, key, value = (
            x.view(x.size(0), x.size(1), self.num_heads, self.head_dim).transpose(1, 2)
            for x in (query, key, value)
        )
        return self.attention.attend(
            query, key, value, key_mask, None if causal else allowed, causal, need_weights
        )


def _visible(mask: Tensor | None, name: str) -> Tensor | None:
    """Keys that a mask of torch's lets through: False in a bool mask, 0 in one of 0 and -inf."""
    if mask is None:
        return None
    check_type(
        isinstance(mask, Tensor) and (mask.dtype == torch.bool or mask.is_floating_point()),
        lambda: f"{NAME}: {name} must be a tensor of bools or floats, got {name_type(mask)}",
    )
    if mask.dtype == torch.bool:
        return ~mask
    message = f"{NAME}: {name} must hold bools, or 0 and -inf: ternary scores take no bias"
    return visible(mask, -torch.inf, message)


class BWTAMultiheadAttention(MultiheadForward, nn.MultiheadAttention):
    """torch's ``MultiheadAttention`` in BWTA: constructor, forward and parameters are torch's.

    The projections are those of :class:`BWTALinear`, each of the three with its own mean and scale
    of weights and its own scale of input; between them is :class:`BWTAAttention`. A query that may
    attend to no key gets the output of zeros, not NaN.

    Args:
        embed_dim: as in torch, and so on up to ``dtype``.
        num_heads: divides ``embed_dim``.
        dropout: probability of dropping an attention weight in training.
        bias: of the projections.
        add_bias_kv: append a learnt key and value.
        add_zero_attn: append a key and value of zeros.
        kdim: features of keys.
        vdim: features of values.
        batch_first: ``[B, N, E]`` rather than ``[N, B, E]``.
        device: of the parameters.
        dtype: of the parameters; scales are float32.
        activation: ``"ternary"``, or ``"sign"`` for binary activations.
        level: of all activations; None for full precision.

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
        check_value(
            embed_dim > 0 and num_heads > 0 and embed_dim % num_heads == 0,
            lambda: f"{NAME}: num_heads must divide embed_dim, got {num_heads} and {embed_dim}",
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

    @property
    def level(self) -> int | None:
        """Largest integer of every activation; None: nothing is quantised."""
        return self.attention.level

    @level.setter
    def level(self, level: int | None) -> None:
        set_level(self, level)

    def projections(self) -> list[tuple[Tensor, Tensor | None, ActivationQuantizer]]:
        """Weight, bias and input quantiser of the projections of queries, keys and values."""
        weights = (
            (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            if self.in_proj_weight is None
            else self.in_proj_weight.chunk(3)
        )
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        quantizers = (
            self.query_input_quantizer,
            self.key_input_quantizer,
            self.value_input_quantizer,
        )
        return list(zip(weights, biases, quantizers, strict=True))

    def _project(self, *inputs: Tensor) -> list[Tensor]:
        return [
            functional.linear(x, weight, bias)
            if self.level is None
            else bwta_product(x, weight, bias, quantizer)
            for x, (weight, bias, quantizer) in zip(inputs, self.projections(), strict=True)
        ]
