"""Signs behind chains of functions as comparisons with thresholds, channels turned round."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bitgnn.convert.values import Value
from bitgnn.inference.fold import sign_threshold
from bitgnn.inference.steps.floats import FUNCTIONS

__all__ = ["Comparison", "folded", "function_of", "mask_of"]

Comparison = tuple[Tensor | None, Tensor | None]
"""Threshold and flipped channels of a sign; None where they are 0 and none."""

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


def mask_of(flipped: Tensor) -> Tensor:
    """Words ``[1, ceil(size / 32)]`` whose set bits are the flipped channels."""
    words: Tensor = _pack(torch.where(flipped, 1.0, -1.0).unsqueeze(0))
    return words
