"""Folds functions in front of a sign into thresholds that give the same signs exactly."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

SIGN_BIT = -(2**31)
# Bit patterns of -inf and +inf in the ordering below; the answer always lies between them.
BISECTION_STEPS = 32
# Where the direction of a function is read off: far out, yet small enough not to overflow.
FAR = 1e30


def _ordered_to_float(key: Tensor) -> Tensor:
    """Floats in ascending order for ascending int64 keys: the IEEE bits, negatives reversed."""
    bits = torch.where(key >= 0, key, SIGN_BIT - key - 1)
    return bits.to(torch.int32).view(torch.float32)


@torch.no_grad()
def sign_threshold(
    function: Callable[[Tensor], Tensor], channels: int, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """Threshold ``t`` and flip ``f`` of each channel with ``(v >= t) ^ f == (function(v) >= 0)``.

    A monotone function has one comparison for its sign. The smallest float ``t`` with
    ``function(t) >= 0`` (the largest one where the function falls) is found by bisection over the
    floats with the function's own arithmetic, so the comparison is its decision for every float
    but NaN, rounding included. A channel whose sign never changes gets an infinite threshold.

    Args:
        function: maps float32 ``[1, channels]`` to the same shape, each channel on its own and
            monotone, rising or falling.
        channels: number of channels.
        device: where the function computes.

    Returns:
        threshold float32 ``[channels]`` and flip bool ``[channels]``.
    """

    def is_positive(value: Tensor) -> Tensor:
        return function(value.unsqueeze(0)).squeeze(0) >= 0

    far = torch.full((channels,), FAR, device=device)
    falls = is_positive(-far) & ~is_positive(far)
    sign = torch.where(falls, -1.0, 1.0)
    infinity = int(torch.tensor(float("inf")).view(torch.int32).item())
    low = torch.full((channels,), -infinity - 1, dtype=torch.int64, device=device)
    high = torch.full((channels,), infinity, dtype=torch.int64, device=device)
    for _ in range(BISECTION_STEPS):
        # Invariant for rising channels: function(low) < 0 <= function(high), or no such high.
        # Floor division keeps middle below high; falling channels run along the negated axis.
        middle = torch.div(low + high, 2, rounding_mode="floor")
        positive = is_positive(sign * _ordered_to_float(middle))
        high = torch.where(positive, middle, high)
        low = torch.where(positive, low, middle)
    threshold = _ordered_to_float(high)
    # v <= -s is not (v >= the next float above -s).
    above = torch.nextafter(-threshold, torch.full_like(threshold, float("inf")))
    return torch.where(falls, above, threshold).contiguous(), falls
