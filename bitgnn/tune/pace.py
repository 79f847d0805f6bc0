"""The pace of a training: how long its epochs take, and whether it will end in time."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from bitgnn.tune.budget import Budget

__all__ = ["Count", "Pace"]

PROBED = 5
"""Epochs that show how many fit in the time."""


class Count:
    """Tells of as many epochs as there are, however many are trained.

    Args:
        total: epochs.
        tell: called with the number of epochs done since the last call.
    """

    def __init__(self, total: int, tell: Callable[[int], Any]) -> None:
        self._left, self._tell = total, tell

    def one(self) -> None:
        """Another epoch was trained."""
        if self._left:
            self._left -= 1
            self._tell(1)

    def finish(self) -> None:
        """No more of them will be."""
        self._tell(self._left)
        self._left = 0


class Pace:
    """Asked in front of every epoch but the first: measures them, and stops what does not fit.

    Args:
        budget: the time there is.
        device: where it is trained.
        epochs: of the training.
        by: share of the budget by which it must be expected to end; None to train on.
        cut: share at which it ends whatever is left of it.
        count: told of every epoch.

    Attributes:
        is_late: it was stopped since it would not end in time.
    """

    def __init__(
        self,
        budget: Budget,
        device: torch.device,
        epochs: int,
        by: float | None,
        cut: float,
        count: Count | None = None,
    ) -> None:
        self._budget, self._device, self._epochs = budget, device, epochs
        self._by, self._cut, self._count = by, cut, count
        self._times: list[float] = []
        self.is_late = False

    def __call__(self) -> bool:
        """Whether to stop."""
        if self._device.type == "cuda" and len(self._times) < PROBED:
            torch.cuda.synchronize(self._device)
        if self._count is not None:
            self._count.one()
        now = self._budget.spent
        self._times.append(now)
        done = len(self._times)
        if done == PROBED and self._by is not None:
            rest = (self._epochs - done) * self.epoch_seconds
            self.is_late = now + rest > self._budget.until(self._by)
        return self.is_late or now >= self._budget.until(self._cut)

    @property
    def epoch_seconds(self) -> float:
        """Median of the epochs behind the first one, which prepares the graph; 0 of too few."""
        taken = [after - before for before, after in pairwise(self._times)]
        return statistics.median(taken) if taken else 0.0
