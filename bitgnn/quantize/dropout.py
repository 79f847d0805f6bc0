"""Dropout that draws four decisions from one random word on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["fast_dropout"]

LEVELS = 2**16
HALVES_PER_WORD = 4
INT64_MIN = -(2**63)


def fast_dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """``torch.nn.functional.dropout`` with ``p`` rounded to a multiple of 2^-16.

    The random numbers of a dense dropout cost more than a layer's matrix products on the CPU;
    16 bits decide as well as 32. What is kept is divided by the rounded probability of keeping,
    so the expectation is exact. Elsewhere than on the CPU this is PyTorch's own dropout.

    Args:
        x: float tensor of any shape.
        p: probability of dropping, in [0, 1).
        training: whether to drop at all.

    Returns:
        Tensor like ``x``; ``x`` itself where nothing is dropped.
    """
    threshold = round(p * LEVELS)
    if not training or threshold == 0:
        return x
    if x.device.type != "cpu":
        return functional.dropout(x, p)
    words = torch.empty(-(-x.numel() // HALVES_PER_WORD), dtype=torch.int64)
    words.random_(INT64_MIN, None)
    halves = words.view(torch.int16)[: x.numel()].view(x.shape)
    keep = halves >= threshold - LEVELS // 2
    return x * (keep.to(x.dtype) * (LEVELS / (LEVELS - threshold)))
