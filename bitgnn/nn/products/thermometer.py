"""Thermometers of dense features: thresholds, and which zeros dropout has made."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "LEVELS", "TINY", "Thermometers", "dropped_share", "exact_offset", "near_probability",
    "thermometers_of",
]  # fmt: skip

TINY = torch.finfo(torch.float32).tiny
"""From which on a value counts as above 0: no device disagrees about normal numbers."""
LEVELS = 15
"""Bits of a dense feature at most: 16 levels. Half as many cost points of accuracy on block models
of 64 to 512 features; twice as many hardly win any."""
UNIFORM = 0.1
"""Maximum difference between columns' shares of zeros where all zeros come from dropout."""
MOST_VARY = 0.5
"""Share of columns that must have several values beside 0 where zeros count as dropped."""
STEPS = 20
CLOSE = 0.01
"""Maximum distance of the share of zeros from the probability, a multiple of 1 / 20."""
OFFSET_STEPS = 2.0**16


class Thermometers(NamedTuple):
    """Bits ``[B]`` of features ``[K]``.

    Attributes:
        columns: int64 ``[B]``, the feature of each bit.
        thresholds: float32 ``[B]``.
        offset: float32 ``[B]``, minus the mean of each bit.
        median: float32 ``[K]``.
    """

    columns: Tensor
    thresholds: Tensor
    offset: Tensor
    median: Tensor


def dropped_share(rows: Tensor, zeros: Tensor) -> float:
    """The share of entries that dropout has zeroed, from each column's share of zeros.

    Dropout takes the same share of every column; features of their own accord hardly do, unless
    they are nearly all 0, or where most have one value beside 0, as balanced one-hot codes do.
    """
    low, high = float(zeros.min()), float(zeros.max())
    if high - low > UNIFORM or high > 1 - UNIFORM:
        return 0.0
    is_zero = rows == 0
    top = rows.masked_fill(is_zero, -torch.inf).amax(0)
    bottom = rows.masked_fill(is_zero, torch.inf).amin(0)
    varies = float((top > bottom).float().mean())
    return float(near_probability(zeros.mean())) if varies > MOST_VARY else 0.0


def near_probability(share: Tensor) -> Tensor:
    """The probability of a dropout that zeroed this share: a multiple of 0.05 near by.

    Years from 1990 to 2020 would be another 20 years off with a share of 0.49 or 0.01.
    """
    near = (share * STEPS).round() / STEPS
    return torch.where(((share - near).abs() <= CLOSE) | (near == 0), near, share)


def _thresholds_of(values: Tensor) -> Tensor:
    """Thresholds for sorted values: quantiles of those that are not 0, and 0 itself."""
    different = torch.unique(values)
    if different.numel() <= LEVELS + 1:
        # A constant feature says nothing, but has its weight.
        return (different[1:] + different[:-1]) / 2 if different.numel() > 1 else different
    mass = values[values != 0]
    edges = [edge for edge in (0.0, TINY) if values[0] < edge <= values[-1]]
    edges = edges if mass.numel() < values.numel() else []
    # One bit less than there may be, as long as 0 takes no second one.
    number = LEVELS - 1 - max(len(edges) - 1, 0)
    cuts = torch.arange(1, number + 1, device=values.device) / (number + 1)
    at = mass[(cuts * mass.numel()).long()]
    extra = at.new_tensor(edges)
    at = torch.unique(torch.cat([at, extra]))
    return at[at > values[0]]


def thermometers_of(rows: Tensor, dropped: Tensor | None) -> Thermometers:
    """Thermometers of features ``[N, K]``.

    Args:
        rows: finite floats.
        dropped: bool ``[K]``, features whose zeros are no values; None for none.
    """
    columns: list[Tensor] = []
    thresholds: list[Tensor] = []
    means: list[Tensor] = []
    medians: list[Tensor] = []
    for number, column in enumerate(rows.t()):
        is_dropped = dropped is not None and bool(dropped[number])
        values = column[column != 0] if is_dropped else column
        values = values if values.numel() else column
        values = values.sort().values
        at = _thresholds_of(values)
        columns.append(torch.full((at.numel(),), number))
        thresholds.append(at)
        below = torch.searchsorted(values, at) / values.numel()
        means.append(1 - 2 * below)
        medians.append(values[(values.numel() - 1) // 2])
    offset = exact_offset(torch.cat(means).neg())
    at_rows = torch.cat(columns).to(rows.device)
    return Thermometers(at_rows, torch.cat(thresholds), offset, torch.stack(medians))


def exact_offset(offset: Tensor) -> Tensor:
    """Multiples of 2^-16, whose sums are exact in any order."""
    return (offset.float() * OFFSET_STEPS).round() / OFFSET_STEPS
