"""Dropout from few random bits on the CPU: of floats, and as packed decisions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.quantize.constants import filled, made_once

__all__ = ["all_words", "fast_dropout", "keep_words"]

LEVEL_BITS = 16
LEVELS = 2**LEVEL_BITS
INT64_MIN = -(2**63)


def fast_dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """``torch.nn.functional.dropout`` with ``p`` rounded to a multiple of 2^-16.

    The random numbers of a dense dropout cost more than a layer's matrix products on the CPU;
    16 random bits a place decide as well as 32, see :func:`keep_words`. What is kept is divided by
    the rounded probability of keeping, so the expectation is exact. Elsewhere than on the CPU this
    is PyTorch's own dropout.

    Args:
        x: float tensor of any shape.
        p: probability of dropping, in [0, 1).
        training: whether to drop at all.

    Returns:
        Tensor like ``x``; ``x`` itself where nothing is dropped.
    """
    if not training or round(p * LEVELS) == 0 or x.numel() == 0:
        return x
    if x.device.type != "cpu":
        return functional.dropout(x, p)
    words, kept = keep_words(1, x.numel(), p, x)
    signs = torch.ops.bitgnn.unpack(words, x.numel()).view(x.shape)
    return x * signs.add_(1.0).mul_(0.5 / kept).to(x.dtype)


def all_words(size: int, like: Tensor) -> Tensor:
    """int32 words ``[1, ceil(size / 32)]`` with the bit of every feature set, for reading alone.

    Args:
        size: features.
        like: tensor on the device in question.
    """
    device = like.device
    return made_once(
        ("words", size), like, lambda: torch.ops.bitgnn.pack(torch.ones(1, size, device=device))
    )


def keep_words(rows: int, size: int, p: float, like: Tensor) -> tuple[Tensor, float]:
    """Decisions of a dropout as packed bits, 1 where kept.

    On the CPU ``p`` is rounded to a multiple of 2^-16 and a random word decides for 64 places at
    once: with ``k`` the kept levels of 2^16, and from the lowest set bit of ``k`` upwards, OR with
    a random word takes a probability ``q`` to ``(1 + q) / 2`` (bit 1), AND to ``q / 2`` (bit 0).

    Args:
        rows: N.
        size: K, features of a row.
        p: probability of dropping, in [0, 1).
        like: tensor on the device in question.

    Returns:
        int32 words ``[N, ceil(K / 32)]`` (padding bits are 0), and the probability of keeping.
    """
    device = like.device
    if device.type != "cpu":
        drawn = torch.rand(rows, size, device=device)
        return torch.ops.bitgnn.pack(drawn, filled(size, p, like)), 1.0 - p
    valid = all_words(size, like)
    kept = LEVELS - round(p * LEVELS)
    if kept == LEVELS:
        return valid.expand(rows, -1).contiguous(), 1.0
    doubles = torch.empty(-(-rows * valid.size(1) // 2), dtype=torch.int64)
    decided = torch.zeros_like(doubles)
    lowest = (kept & -kept).bit_length() - 1
    for bit in range(lowest, LEVEL_BITS):
        doubles.random_(INT64_MIN, None)
        if kept >> bit & 1:
            decided.bitwise_or_(doubles)
        else:
            decided.bitwise_and_(doubles)
    words = decided.view(torch.int32)[: rows * valid.size(1)].view(rows, valid.size(1))
    return words.bitwise_and_(valid), kept / LEVELS
