"""Packed bits of an activation as floats -1/2 and +1/2, with a straight-through gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.quantize.looked_up_linear import MIDDLE, InputWords

__all__ = ["centred_bits"]


def centred_bits(x: Tensor, bits: InputWords) -> Tensor:
    r"""``g (b - 1/2)`` of an activation's bits b, 0 where dropout has taken them.

    The gradient reaches ``x`` where :math:`|x|` is within the window, as that of
    :func:`bitgnn.quantize.looked_up_linear.looked_up_linear` does.

    Args:
        x: ``[*, K]``, what the bits were made of.
        bits: of its rows, of an activation, with the gain g of a dropout as a number.

    Returns:
        As ``x``.
    """
    out: Tensor = _CentredBits.apply(x, bits)
    return out


class _CentredBits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bits: InputWords) -> Tensor:
        ctx.save_for_backward(x if bits.window is not None else None, bits.window)
        # Behind a known dropout, which multiplies by the gain itself.
        ctx.gain = 1.0 if bits.raised is not None or bits.gain is None else bits.gain
        if bits.raised is None:
            out = torch.ops.bitgnn.unpack(bits.words, bits.size)
        else:
            out = torch.ops.bitgnn.unpack_pair(bits.words, bits.raised, bits.size)
        gain = 1.0 if bits.gain is None else bits.gain
        out.mul_(bits.step * gain)
        if bits.has_shift:
            out.add_(bits.step * gain + MIDDLE)
        return out.to(x.dtype).view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, window = ctx.saved_tensors
        grad = grad if ctx.gain == 1.0 else grad * ctx.gain
        return grad if x is None else grad * (x.abs() <= window), None
