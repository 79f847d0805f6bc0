"""The forward of torch's MultiheadAttention, in training and on bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.nn.float_inputs import check_floats

__all__ = ["MultiheadForward"]

NAME = "BWTAMultiheadAttention"


class MultiheadForward:
    """Mixin of modules that are called as torch's ``MultiheadAttention`` is.

    Attributes:
        embed_dim: E, features of queries and of the output.
        kdim: features of keys.
        vdim: features of values.
        num_heads: H.
        head_dim: D.
        batch_first: ``[B, N, E]`` rather than ``[N, B, E]``.
        bias_k: appended key ``[1, 1, E]`` or None.
        bias_v: appended value or None.
        add_zero_attn: append a key and value of zeros.
        attention: what attends between the projections.
        out_proj: the last projection.
        input_dtypes: of queries, keys and values; None for any floats.
    """

    embed_dim: int
    kdim: int
    vdim: int
    num_heads: int
    head_dim: int
    batch_first: bool
    bias_k: Any
    bias_v: Any
    add_zero_attn: bool
    attention: Any
    out_proj: Any
    input_dtypes: tuple[torch.dtype, ...] | None = None

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
            TypeError: queries, keys or values are no dense tensors of floats, or a mask is no
                tensor of bools or floats.
            ValueError: shapes or devices do not fit together, a mask of floats holds other values
                than 0 and -inf, or ``is_causal`` comes without ``attn_mask``.
        """
        for name, x in (("query", query), ("key", key), ("value", value)):
            check_floats(NAME, name, x, self.attention.device, self.input_dtypes)
        batched = query.dim() == 3
        q, k, v = (self._batch_first(x, batched) for x in (query, key, value))
        check_value(
            q.dim() == k.dim() == v.dim() == 3,
            lambda: (
                f"{NAME}: query, key and value must have 2 or 3 dimensions alike, got "
                f"{list(query.shape)}, {list(key.shape)} and {list(value.shape)}"
            ),
        )
        batch, length = q.size(0), k.size(1)
        for name, x, shape in (
            ("query", q, (batch, q.size(1), self.embed_dim)),
            ("key", k, (batch, length, self.kdim)),
            ("value", v, (batch, length, self.vdim)),
        ):
            check_value(
                x.shape == shape,
                lambda name=name, x=x, shape=shape: (  # type: ignore[misc]
                    f"{NAME}: {name} must be {list(shape)} (batch first), got {list(x.shape)}"
                ),
            )
        check_value(
            not is_causal or attn_mask is not None,
            lambda: f"{NAME}: is_causal needs the attn_mask that it speaks of, got None",
        )
        key_mask = visible(key_padding_mask, "key_padding_mask")
        if key_mask is not None and not batched:
            key_mask = key_mask.unsqueeze(0)
        allowed = visible(attn_mask, "attn_mask")
        result, weights = self._attend_projected(
            *self._project(q, k, v), key_mask, allowed, is_causal, need_weights
        )
        out = self.out_proj(result)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The three projections ``[B, N, E]``."""
        raise NotImplementedError

    def _attend_projected(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None,
        allowed: Tensor | None,
        is_causal: bool,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of projections: ``[B, N, E]``, and weights ``[B, H, N, L]`` or None.

        ``key_mask`` and ``allowed`` are True where a key is visible.
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
        # The hint is believed, as torch does; a mask proper is slower on bits.
        causal = is_causal and not more and query.size(1) == length
        query, key, value = (self._heads(x) for x in (query, key, value))
        attended = self.attention.attend(
            query, key, value, key_mask, None if causal else allowed, causal, need_weights
        )
        weights = attended.weights if need_weights else None
        return attended.out.transpose(1, 2).flatten(2), weights

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
    """Keys that a mask of torch's lets through: False in a bool mask, 0 in one of 0 and -inf.

    Raises:
        TypeError: it is no tensor of bools or floats.
        ValueError: a mask of floats holds other values.
    """
    if mask is None:
        return None
    check_type(
        isinstance(mask, Tensor) and (mask.dtype == torch.bool or mask.is_floating_point()),
        lambda: f"{NAME}: {name} must be a tensor of bools or floats, got {name_type(mask)}",
    )
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
