"""A tuner's time: what it may take, and whether the next work or the rest of a training fits."""

from __future__ import annotations

import math
import os
import re
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from bitgnn.tune.objective import ObjectiveError

__all__ = ["Budget", "Count", "Pace", "adding_up", "age_of_process", "parse_seconds"]

_UNITS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_TIME = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)
PROCESS_FILE = Path("/proc/self/stat")
BEGIN_FIELD = 19
"""Place of the begin of the process behind its name, in ticks since the system began."""
SMOOTHING = 0.5
"""Weight of the last piece of work in the expectation of the next one of its kind."""
PROBED = 5
"""Epochs that show how many fit in the time."""


def parse_seconds(text: str | float) -> float:
    """Read ``"60s"``, ``"5 min"``, ``"1h"`` or a number of seconds.

    Raises:
        ObjectiveError: it is none of these, or not above 0.
    """
    match = _TIME.fullmatch(str(text))
    factor = _UNITS.get(match[2].lower() or "s") if match else None
    if match is None or factor is None or float(match[1]) * factor <= 0:
        raise ObjectiveError(f"budget must be a time such as '60s' or '5 min', got {text!r}")
    return float(match[1]) * factor


def age_of_process() -> float:
    """Seconds since this process began; 0 where the system does not tell."""
    try:
        fields = PROCESS_FILE.read_text().rpartition(")")[2].split()
        began = int(fields[BEGIN_FIELD]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began)
    except (AttributeError, IndexError, OSError, ValueError):
        return 0.0


class Budget:
    """Time that is left, and what pieces of work of each kind took so far.

    Args:
        seconds: all of it; None for no limit.
        clock: gives seconds.
        spent: seconds that are gone already.
    """

    def __init__(
        self,
        seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        spent: float = 0.0,
    ) -> None:
        self.seconds = math.inf if seconds is None else seconds
        self._clock = clock
        self._begin = clock() - spent
        self._stage = 0.0
        self._expected: dict[str, float] = {}

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._begin

    @property
    def left(self) -> float:
        """Seconds that are left; below 0 where it took longer."""
        return self.seconds - self.spent

    def begin_stage(self) -> None:
        """Count shares from now on: what ran before takes nothing from the stages that follow."""
        self._stage = self.spent

    def until(self, share: float) -> float:
        """Seconds since the beginning at which a share of the present stage is used up."""
        return self._stage + share * (self.seconds - self._stage)

    def fits(self, kind: str, share: float = 1.0) -> bool:
        """Whether another piece of work of a kind is expected to end within the budget.

        The first one of its kind fits as long as any time is left.

        Args:
            kind: name of the kind.
            share: of the stage that this kind and what ran before it may use up.
        """
        return self.spent + self._expected.get(kind, 0.0) < self.until(share)

    def did(self, kind: str, seconds: float) -> None:
        """Note how long a piece of work took."""
        before = self._expected.get(kind, seconds)
        self._expected[kind] = SMOOTHING * seconds + (1 - SMOOTHING) * before


def adding_up(tell: Callable[[int, int], Any], total: int) -> Callable[[int], None]:
    """What to call with the epochs done since the last call, to tell of those done in all.

    Args:
        tell: called with the epochs done and all there are.
        total: all there are.
    """
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        tell(done, total)

    return advance


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
