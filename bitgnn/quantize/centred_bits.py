"""Packed bits of an activation as floats -1/2 and +1/2, with a straight-through gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.quantize.looked_up_linear import MIDDLE, InputWords

__all__ = ["centred_bits"]


def centred_bits(x: Tensor, bits: InputWords, window: Tensor | None) -> Tensor:
    r"""``g (b - 1/2)`` of an activation's bits b, 0 where dropout has taken them.

    The gradient reaches ``x`` where :math:`|x|` is within the window, as that of
    :func:`bitgnn.quantize.looked_up_linear.looked_up_linear` does.

    Args:
        x: ``[*, K]``, what the bits were made of.
        bits: 0/1 bits of its rows, with the gain g of a dropout.
        window: scalar tensor, or None for no bound.

    Returns:
        As ``x``.
    """
    out: Tensor = _CentredBits.apply(x, bits, window)
    return out


class _CentredBits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bits: InputWords, window: Tensor | None) -> Tensor:
        ctx.save_for_backward(x if window is not None else None, window, bits.gain, bits.kept)
        out = _zero_one(bits.words, bits.size)
        if bits.kept is not None:
            out.add_(_zero_one(bits.kept, bits.size), alpha=MIDDLE)
        if bits.gain is not None:
            out.mul_(bits.gain)
        if bits.kept is None:
            out.add_(MIDDLE)
        return out.to(x.dtype).view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, window, gain, kept = ctx.saved_tensors
        # Behind a known dropout, which multiplies by the gain itself.
        grad = grad if gain is None or kept is not None else grad * gain.to(grad.dtype)
        return grad if x is None else grad * (x.abs() <= window), None, None


def _zero_one(words: Tensor, size: int) -> Tensor:
    bits: Tensor = torch.ops.bitgnn.unpack(words, size)
    return bits.add_(1.0).mul_(0.5)
