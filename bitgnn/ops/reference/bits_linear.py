"""Reference of the product of packed rows with float weights in three digits of 8 bits."""

import torch
from torch import Tensor

from bitgnn.ops.reference.pack import signs
from bitgnn.ops.reference.table import operator

DIGITS = 3
"""A weight is ``(65536 d0 + 256 d1 + d2) * step``."""
SHIFTS = 8
"""Byte ``[t, j]`` of a word belongs to its feature ``t + 8 j``."""


def digits_in_order(digits: Tensor) -> Tensor:
    """Digits ``[3, M, W, 8, 4]`` as ``[3, M, 32 W]`` in the order of features."""
    return digits.transpose(-1, -2).flatten(2)


@operator("x:N,W(size) digits:3,M,W(size),8,4 step:M x_scale:N bias:M addend:N,M -> floats:N,M")
def bits_linear(
    x: Tensor,
    digits: Tensor,
    step: Tensor,
    size: int,
    x_scale: Tensor | None = None,
    bias: Tensor | None = None,
    addend: Tensor | None = None,
) -> Tensor:
    """Float32 ``[N, M]``: ``(x_scale * step) * (65536 S0 + (256 S1 + S2)) + bias + addend``.

    ``S`` are the exact integer sums of the digits with the signs of the words x ``[N, W]``; every
    float step behind them is rounded to float32 on its own, in this order.
    """
    values = digits_in_order(digits)[:, :, :size].to(torch.float64)
    sums = (signs(x, size).to(torch.float64) @ values.transpose(1, 2)).to(torch.int64)
    high, low = sums[0].to(torch.float32), (256 * sums[1] + sums[2]).to(torch.float32)
    factor = step if x_scale is None else x_scale.unsqueeze(1) * step
    value = factor * (65536.0 * high + low)
    value = value if bias is None else value + bias
    return value if addend is None else value + addend
