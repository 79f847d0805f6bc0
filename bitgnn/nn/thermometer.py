"""Features whose bits are looked up: thresholds, zeros that dropout made, and bad columns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

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
MANY = 5
"""Columns that a message names at most."""


class Thermometers(NamedTuple):
    """Bits ``[B]`` of features ``[K]``: the feature of each, minus its mean, and medians."""

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
    """Thermometers of finite ``[N, K]``; zeros of ``dropped`` ones, bool ``[K]``, are no values."""
    columns: list[Tensor] = []
    thresholds: list[Tensor] = []
    means: list[Tensor] = []
    medians: list[Tensor] = []
    for number, column in enumerate(rows.t()):
        is_dropped = dropped is not None and bool(dropped[number])
        values = column[column != 0] if is_dropped else column
        values = (values if values.numel() else column).sort().values
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


def check_finite_columns(owner: str, rows: Tensor) -> None:
    """Require features ``[N, K]`` without NaN and infinity; ``owner`` is the layer's class."""
    finite = torch.isfinite(rows)
    if not bool(finite.all()):
        columns = (~finite).any(0).nonzero().view(-1).tolist()
        raise ValueError(
            f"{owner}: x must be finite where its bits are looked up, got NaN or infinity "
            f"in columns {_named(columns)}"
        )


def warn_of_constant_columns(owner: str, rows: Tensor, few_are_usual: bool = False) -> None:
    """Warn of columns whose bits say nothing; with ``few_are_usual`` only where all are constant.

    Of a bag of words there are always some that no document has; one row says nothing of columns.
    """
    if rows.size(0) <= 1:
        return
    columns = (rows == rows[0]).all(0).nonzero().view(-1).tolist()
    number, size = len(columns), rows.size(1)
    if number == 0 or (few_are_usual and number < size):
        return
    if number == size:
        found = f"got {rows.size(0)} equal rows, whose bits tell no node from another"
    else:
        found = f"got the same value in all {rows.size(0)} rows of column{'s' * (number > 1)} "
        found += f"{_named(columns)}, whose bits say nothing"
    warnings.warn(
        f"{owner}: x must vary where its bits are looked up, {found}", UserWarning, stacklevel=2
    )


def _named(columns: Sequence[int]) -> str:
    return ", ".join(map(str, columns[:MANY])) + (", ..." if len(columns) > MANY else "")
