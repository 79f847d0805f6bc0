"""torch's MultiheadAttention with binary projections and ternary products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn._checks import check_value
from bitgnn.nn.activation_quantizer import ActivationQuantizer, Kind
from bitgnn.nn.bwta_attention import BWTAAttention
from bitgnn.nn.bwta_linear import BWTALinear, bwta_product

__all__ = ["BWTAMultiheadAttention"]

NAME = "BWTAMultiheadAttention"


class BWTAMultiheadAttention(nn.MultiheadAttention):
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
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first,
            device,
            dtype,
        )
        # TransformerEncoderLayer would compute attention itself, past this class, were it True.
        self._qkv_same_embed_dim = False
        initial = self.out_proj.state_dict()
        self.out_proj = BWTALinear(  # type: ignore[assignment]
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
        for module in self.children():
            module.level = level  # type: ignore[assignment]

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

    def forward(
        self,
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
            ValueError: shapes do not fit together, a mask of floats holds other values than 0 and
                -inf, or ``is_causal`` comes without ``attn_mask``.
        """
        batched = query.dim() == 3
        q, k, v = (self._batch_first(x, batched) for x in (query, key, value))
        check_value(
            q.dim() == k.dim() == v.dim() == 3,
            lambda: (
                f"{NAME}: query, key and value must have 2 or 3 dimensions alike, got "
                f"{list(query.shape)}, {list(key.shape)} and {list(value.shape)}"
            ),
        )
        check_value(
            not is_causal or attn_mask is not None,
            lambda: f"{NAME}: is_causal needs the attn_mask that it speaks of, got None",
        )
        key_mask = visible(key_padding_mask, "key_padding_mask")
        if key_mask is not None and not batched:
            key_mask = key_mask.unsqueeze(0)
        query, key, value = (
            self._project(x, *projection)
            for x, projection in zip((q, k, v), self.projections(), strict=True)
        )
        result, weights = self.attend_projected(
            query, key, value, key_mask, visible(attn_mask, "attn_mask"), need_weights
        )
        out = self.out_proj(result)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), weights

    def attend_projected(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None,
        allowed: Tensor | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of projections ``[B, N, E]``: ``[B, N, E]`` and ``[B, H, N, L]`` or None.

        Args:
            query: of the queries.
            key: of the keys.
            value: of the values.
            key_mask: bool ``[B, L]``, True where visible; or None.
            allowed: bool ``[N, L]`` or ``[B * H, N, L]``, True where visible; or None.
            need_weights: whether the second is needed.
        """
        batch, length = query.size(0), key.size(1)
        check_mask("attn_mask", allowed, (query.size(1), length), batch * self.num_heads)
        check_mask("key_padding_mask", key_mask, (batch, length))
        if allowed is not None and allowed.dim() == 3:
            allowed = allowed.view(batch, self.num_heads, *allowed.shape[1:])
        key, value, more = self._with_added(key, value)
        if more and key_mask is not None:
            key_mask = functional.pad(key_mask, (0, more), value=True)
        if more and allowed is not None:
            allowed = functional.pad(allowed, (0, more), value=True)
        query, key, value = (self._heads(x) for x in (query, key, value))
        allowed = self.attention.allowed(query, key, value, key_mask, allowed, False)
        attended = self.attention.attend(query, key, value, allowed, need_weights)
        weights = attended.weights if need_weights else None
        return attended.out.transpose(1, 2).flatten(2), weights

    def _project(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, quantizer: ActivationQuantizer
    ) -> Tensor:
        if self.level is None:
            return functional.linear(x, weight, bias)
        return bwta_product(x, weight, bias, quantizer)

    def _batch_first(self, x: Tensor, batched: bool) -> Tensor:
        if not batched:
            return x.unsqueeze(0)
        return x if self.batch_first or x.dim() != 3 else x.transpose(0, 1)

    def _with_added(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, int]:
        """Keys and values with the appended ones, and how many those are."""
        length = key.size(1)
        if self.bias_k is not None and self.bias_v is not None:
            key, value = (
                torch.cat([x, bias.to(x.dtype).expand(x.size(0), -1, -1)], 1)
                for x, bias in ((key, self.bias_k), (value, self.bias_v))
            )
        if self.add_zero_attn:
            key, value = (functional.pad(x, (0, 0, 0, 1)) for x in (key, value))
        return key, value, key.size(1) - length

    def _heads(self, x: Tensor) -> Tensor:
        """``[B, N, E]`` as ``[B, H, N, D]``."""
        return x.view(x.size(0), x.size(1), self.num_heads, self.head_dim).transpose(1, 2)


def visible(mask: Tensor | None, name: str) -> Tensor | None:
    """What a mask of torch's lets through: the inverse of a bool one, 0 of one of 0 and -inf.

    Raises:
        ValueError: a mask of floats holds other values.
    """
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        return ~mask
    seen = mask == 0
    capturing = mask.is_cuda and torch.cuda.is_current_stream_capturing()
    if not (torch.compiler.is_compiling() or capturing):
        check_value(
            bool((seen | (mask == -torch.inf)).all()),
            lambda: f"{NAME}: {name} must hold bools, or 0 and -inf: ternary scores take no bias",
        )
    return seen


def check_mask(
    name: str, mask: Tensor | None, shape: tuple[int, int], stacked: int | None = None
) -> None:
    """Refuse a mask that is neither of that shape nor a stack of so many of it.

    Raises:
        ValueError: it is.
    """
    fits = mask is None or mask.shape == shape
    if mask is not None and stacked is not None:
        fits = fits or mask.shape == (stacked, *shape)
    check_value(
        fits,
        lambda: (
            f"{NAME}: {name} must be {list(shape)}"
            + ("" if stacked is None else f" or {[stacked, *shape]}")
            + f", got {list(mask.shape)}"  # type: ignore[union-attr]
        ),
    )
