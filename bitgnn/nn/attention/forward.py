"""Arguments, checks and masks of attention, in training and on bits."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.nn.float_inputs import check_floats

__all__ = ["Attended", "AttentionForward", "allowed_keys", "score_factor"]


class Attended(NamedTuple):
    """Result of attention.

    Attributes:
        out: ``[B, H, N, D]``.
        weights: ``[B, H, N, L]`` by which values were multiplied; None where nobody needs them.
        probabilities: the softmax they come from; None where nobody needs it.
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

    Args:
        queries: N.
        keys: L.
        key_mask: bool ``[B, L]`` or None.
        allowed: bool that broadcasts to ``[B, H, N, L]``, or None.
        causal: query i attends to keys j <= i + L - N.
        device: of the result.
    """
    if causal:
        past = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
        allowed = past if allowed is None else allowed & past
    if key_mask is not None:
        seen = key_mask.bool()[:, None, None, :]
        allowed = seen if allowed is None else allowed & seen
    return allowed


def score_factor(factor: float | None, size: int) -> float:
    """Factor of the scores of heads of ``size`` features: ``factor``, or 1 / sqrt(D).

    One expression for training and bits: its last bit may decide one of attention's.
    """
    return 1.0 / math.sqrt(size) if factor is None else factor


class AttentionForward:
    """Mixin of modules that attend: :meth:`forward` checks, :meth:`attend` does.

    Attributes:
        input_dtypes: of queries, keys and values; None for any floats.
    """

    input_dtypes: tuple[torch.dtype, ...] | None = None

    @property
    def device(self) -> torch.device:
        """Where its scales are."""
        raise NotImplementedError

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
        raise NotImplementedError

    def forward(
        self,
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
            causal: query i attends to keys j <= i + L - N alone.
            return_probabilities: return the softmax ``[B, H, N, L]`` behind the output, too.

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
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None,
        allowed: Tensor | None,
    ) -> None:
        """Refuse what :meth:`forward` says it refuses.

        Raises:
            TypeError: a type does not fit.
            ValueError: shapes or devices do not fit.
        """
        name = type(self).__name__
        for what, x in (("query", query), ("key", key), ("value", value)):
            check_floats(name, what, x, self.device, self.input_dtypes)
        for what, mask, kind in (("key_mask", key_mask, "a"), ("allowed", allowed, "a bool")):
            check_type(
                mask is None
                or (isinstance(mask, Tensor) and (what == "key_mask" or mask.dtype == torch.bool)),
                lambda what=what, mask=mask, kind=kind: (  # type: ignore[misc]
                    f"{name}: {what} must be {kind} tensor, got {name_type(mask)}"
                ),
            )
        fits = query.dim() == key.dim() == 4 and key.shape == value.shape
        fits = fits and query.size(0) == key.size(0) and query.size(3) == key.size(3)
        check_value(
            fits,
            lambda: (
                f"{name}: query must be [B, H, N, D], key and value [B, Hk, L, D], got "
                f"{list(query.shape)}, {list(key.shape)} and {list(value.shape)}"
            ),
        )
        check_value(
            key.size(1) > 0 and query.size(1) % key.size(1) == 0,
            lambda: (
                f"{name}: the heads of keys must divide those of queries, got {key.size(1)} and "
                f"{query.size(1)}"
            ),
        )
        batch, keys = query.size(0), key.size(2)
        check_value(
            key_mask is None or key_mask.shape == (batch, keys),
            lambda: f"{name}: key_mask must be {[batch, keys]}, got {list(key_mask.shape)}",  # type: ignore[union-attr]
        )
        shape = (batch, query.size(1), query.size(2), keys)
        check_value(
            allowed is None
            or (
                allowed.dim() <= len(shape)
                and all(
                    given in (1, size)
                    for given, size in zip(reversed(allowed.shape), reversed(shape), strict=False)
                )
            ),
            lambda: f"{name}: allowed must broadcast to {list(shape)}, got {list(allowed.shape)}",  # type: ignore[union-attr]
        )
