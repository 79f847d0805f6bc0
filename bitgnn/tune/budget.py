"""A tuner's time: what it may take, and whether the next piece of work fits."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from bitgnn.tune.objective import ObjectiveError

_UNITS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_TIME = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)
PROCESS_FILE = Path("/proc/self/stat")
BEGIN_FIELD = 19
"""Place of the begin of the process behind its name, in ticks since the system began."""
SMOOTHING = 0.5
"""Weight of the last piece of work in the expectation of the next one of its kind."""


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
        self._expected: dict[str, float] = {}

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._begin

    @property
    def left(self) -> float:
        """Seconds that are left; below 0 where it took longer."""
        return self.seconds - self.spent

    def until(self, share: float) -> float:
        """Seconds since the beginning at which a share of it is used up."""
        return share * self.seconds

    def part(self, share: float, parts: int = 1) -> Budget:
        """One of some equal parts of what is left until a share is used up."""
        left = (self.until(share) - self.spent) / parts
        return Budget(max(0.0, left), self._clock)

    def fits(self, kind: str, share: float = 1.0) -> bool:
        """Whether another piece of work of a kind is expected to end within the budget.

        The first one of its kind fits as long as any time is left.

        Args:
            kind: name of the kind.
            share: of it that this kind and what ran before it may use up.
        """
        return self.spent + self._expected.get(kind, 0.0) < self.until(share)

    def did(self, kind: str, seconds: float) -> None:
        """Note how long a piece of work took."""
        before = self._expected.get(kind, seconds)
        self._expected[kind] = SMOOTHING * seconds + (1 - SMOOTHING) * before
