"""Signs behind chains of functions as comparisons with thresholds, channels turned round."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bitgnn.convert.network.values import Value
from bitgnn.inference.steps.floats import FUNCTIONS
from bitgnn.inference.threshold_folding import sign_threshold
from bitgnn.ops.limits import integer_limits

__all__ = ["EXACT", "Comparison", "folded", "folded_scale", "function_of", "mask_of"]

Comparison = tuple[Tensor | None, Tensor | None]
"""Threshold and flipped channels of a sign; None where they are 0 and none."""

EXACT = 2**24
"""Integers up to which float32 is exact."""

_pack = torch.ops.bitgnn.pack.default


def function_of(value: Value) -> Callable[[Tensor], Tensor]:
    """What a value of kind ``"function"`` does to the value in front of it."""
    function = FUNCTIONS[value.name].apply
    return lambda v: function(v, value.tensors, value.attributes)


def folded(
    functions: Sequence[Callable[[Tensor], Tensor]], size: int, device: torch.device
) -> Comparison:
    """Threshold and flipped channels of the sign behind a chain of functions.

    Args:
        functions: monotone in each channel, applied in order.
        size: number of channels.
        device: where the functions' tensors are.
    """
    if not functions:
        return None, None

    def chain(v: Tensor) -> Tensor:
        for function in functions:
            v = function(v)
        return v

    threshold, flipped = sign_threshold(chain, size, device)
    has_flips = bool(flipped.any())
    if not has_flips and bool((threshold == 0).all()):
        return None, None
    return threshold, flipped if has_flips else None


def folded_scale(
    size: int, scale: Tensor, threshold: Tensor | None, flipped: Tensor | None
) -> Comparison:
    """The comparison ``(scale * dot >= threshold) ^ flipped`` as one of dot products themselves.

    Args:
        size: dot products lie in ``[-size, size]``, below :data:`EXACT`.
        scale: float32 of each channel, of any sign.
        threshold: None is 0.
        flipped: None is no channel.
    """
    least_value = torch.zeros_like(scale) if threshold is None else threshold
    least, turned = integer_limits(lambda dot: scale * dot.float() >= least_value, size, scale)
    if flipped is not None:
        turned = turned ^ flipped
    has_flips = bool(turned.any())
    if not has_flips and bool((least == 0).all()):
        return None, None
    return least.float(), turned if has_flips else None


def mask_of(flipped: Tensor) -> Tensor:
    """Words ``[1, ceil(size / 32)]`` whose set bits are the flipped channels."""
    words: Tensor = _pack(torch.where(flipped, 1.0, -1.0).unsqueeze(0))
    return words
