"""Keys that a query's boolean attention keeps, by the definition of packed attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["attended_keys", "softmax_table"]

LEAST_EXPONENT = -700.0
LOG2_E = float.fromhex("0x1.71547652b82fep+0")
LN2_HIGH = float.fromhex("0x1.62e42feep-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
TAYLOR_DEGREE = 13
EXPONENT_BIAS, MANTISSA_BITS = 1023, 52


def softmax_table(scale: Tensor, entries: int) -> Tensor:
    r"""``T[t]``, :math:`e^{-scale \cdot t}` for t in [0, entries), never rising.

    The IEEE operations of ``csrc/attention/softmax_table.h`` one after the other, so that the
    table is the operators' own to the last bit, on any device and without waiting for it.

    Args:
        scale: 0-d float64, positive.
        entries: length of the table.

    Returns:
        ``[entries]`` float64.
    """
    x = -(scale * torch.arange(entries, dtype=torch.float64, device=scale.device))
    k = torch.floor(x.clamp(min=LEAST_EXPONENT) * LOG2_E + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    p = torch.full_like(r, 1.0 / math.factorial(TAYLOR_DEGREE))
    for n in range(TAYLOR_DEGREE - 1, -1, -1):
        p = p * r + 1.0 / math.factorial(n)
    power = ((k.long() + EXPONENT_BIAS) << MANTISSA_BITS).view(torch.float64)
    table = torch.where(x >= LEAST_EXPONENT, p * power, 0.0)
    return table.cummin(0)[0] if entries else table


@torch.no_grad()
def attended_keys(
    dot: Tensor, allowed: Tensor | None, scale: Tensor, bool_scale: Tensor, size: int
) -> Tensor:
    r"""Bits of :math:`\mathrm{softmax}(scale \cdot dot) \ge 0.5\, bool\_scale`, decided exactly.

    With m the highest dot product of a row and T of :func:`softmax_table`, a bit is
    :math:`T[m - d_j] \ge 0.5\, bool\_scale \sum_t T[t]\,\#\{j : m - d_j = t\}`, the sum in
    float64 over t ascending: the definition of ``attention_ternary``, whatever order kernels read
    keys in.

    Args:
        dot: ``[..., N, L]`` dot products of ternary rows, integers in [-size, size].
        allowed: bool that broadcasts to ``dot``: keys that a query may attend to; None for all.
        scale: 0-d float64.
        bool_scale: 0-d float64.
        size: D, features of a head.

    Returns:
        Float32 tensor of 0 and 1 like ``dot``; rows that may attend to nothing are 0.
    """
    if dot.numel() == 0:
        return torch.zeros_like(dot, dtype=torch.float32)
    entries = 2 * size + 1
    if allowed is None:
        distance = dot.amax(-1, keepdim=True) - dot
    else:
        highest = dot.masked_fill(~allowed, -torch.inf).amax(-1, keepdim=True)
        # One beyond the table: counted by nobody.
        distance = (highest - dot).masked_fill(~allowed.expand_as(dot), entries)
    place = distance.long()
    histogram = torch.zeros(*dot.shape[:-1], entries + 1, dtype=torch.float64, device=dot.device)
    histogram.scatter_add_(-1, place, torch.ones_like(distance, dtype=torch.float64))
    table = softmax_table(scale, entries)
    total = torch.zeros(dot.shape[:-1], dtype=torch.float64, device=dot.device)
    for t in range(entries):
        total = total + table[t] * histogram[..., t]
    limit = (0.5 * bool_scale) * total
    powers = torch.cat([table, table.new_full((1,), -1.0)])  # hidden keys are below every limit
    return (powers[place] >= limit.unsqueeze(-1)).float()
