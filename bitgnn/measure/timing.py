"""Wall-clock timing: every repeat kept, contenders interleaved, caches warm or cold on request."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

MIN_REPEATS = 7
# A repeat shorter than this calls the function several times, or the clock and the scheduler
# would be a visible part of it.
MIN_REPEAT_SECONDS = 10e-3
# On a quiet machine the slowest tenth is a few per cent above the fastest tenth.
NOISY_RATIO = 1.25
# Last-level cache assumed where the system does not tell.
DEFAULT_CACHE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one function, one entry a repeat, in the order they were taken.

    Attributes:
        seconds: Seconds per call of every repeat.
        calls: Calls in each repeat.
        cold: Whether the caches were emptied before each repeat.
    """

    seconds: tuple[float, ...]
    calls: int = 1
    cold: bool = False

    def quantile(self, q: float) -> float:
        """Seconds per call at quantile ``q`` in [0, 1], interpolated linearly."""
        return float(np.quantile(self.seconds, q))

    @property
    def median(self) -> float:
        """Median seconds per call."""
        return self.quantile(0.5)

    @property
    def minimum(self) -> float:
        """Seconds per call of the fastest repeat."""
        return min(self.seconds)

    @property
    def noisy(self) -> bool:
        """Whether the 90 % quantile exceeds the 10 % quantile by more than a quarter."""
        return self.quantile(0.9) > NOISY_RATIO * self.quantile(0.1)

    def to_dict(self) -> dict[str, Any]:
        """All repeats and their summary, ready for JSON; times in seconds."""
        return {
            "median": self.median,
            "min": self.minimum,
            "p10": self.quantile(0.1),
            "p90": self.quantile(0.9),
            "noisy": self.noisy,
            "calls_per_repeat": self.calls,
            "cold": self.cold,
            "seconds": list(self.seconds),
        }


def last_level_cache_bytes() -> int:
    """Size of the largest CPU cache in bytes, 64 MiB where the system does not tell."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        unit = {"K": 2**10, "M": 2**20}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM")) * unit)
    if not sizes and "SC_LEVEL3_CACHE_SIZE" in os.sysconf_names:
        sizes.append(os.sysconf("SC_LEVEL3_CACHE_SIZE"))
    return max([*sizes, 0]) or DEFAULT_CACHE_BYTES


def cache_evictor() -> Callable[[], None]:
    """A function that pushes everything else out of the caches by streaming a larger buffer."""
    buffer = torch.zeros(4 * last_level_cache_bytes(), dtype=torch.uint8)

    def evict() -> None:
        buffer.add_(1)

    return evict


def measure(
    fn: Callable[[], Any], *, warmup: int = 3, repeats: int = 15, cold: bool = False
) -> Timing:
    """Times one function.

    Args:
        fn: What to time; its result is dropped.
        warmup: Untimed calls before the first repeat, at least 1.
        repeats: Timed repeats, at least 7.
        cold: Empty the caches before each repeat; each repeat is then a single call.

    Raises:
        ValueError: ``warmup`` or ``repeats`` is too small.
    """
    return compare({"fn": fn}, warmup=warmup, repeats=repeats, cold=cold)["fn"]


def compare(
    functions: Mapping[str, Callable[[], Any]],
    *,
    warmup: int = 3,
    repeats: int = 15,
    cold: bool = False,
) -> dict[str, Timing]:
    """Times several functions round-robin, so that drift of the machine meets all of them alike.

    A warm repeat is preceded by one untimed call, since another function ran in between.

    Args:
        functions: Name to function.
        warmup: Untimed calls of each function before the first round, at least 1.
        repeats: Rounds, at least 7.
        cold: Empty the caches before each repeat; each repeat is then a single call.

    Returns:
        Name to :class:`Timing`, in the given order.

    Raises:
        ValueError: ``warmup`` or ``repeats`` is too small, or there is nothing to time.
    """
    if repeats < MIN_REPEATS:
        raise ValueError(f"compare: repeats must be at least {MIN_REPEATS}, got {repeats}")
    if warmup < 1:
        raise ValueError(f"compare: warmup must be at least 1, got {warmup}")
    if not functions:
        raise ValueError("compare: functions is empty")
    enough = {name: _warm_up(fn, warmup) for name, fn in functions.items()}
    calls = {name: 1 if cold else enough[name] for name in functions}
    settle = cache_evictor() if cold else None
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, fn in functions.items():
            (settle or fn)()
            seconds[name].append(_elapsed(fn, calls[name]) / calls[name])
    return {name: Timing(tuple(seconds[name]), calls[name], cold) for name in functions}


def _elapsed(fn: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        fn()
    return time.perf_counter() - start


def _warm_up(fn: Callable[[], Any], warmup: int) -> int:
    """Calls ``fn`` and returns how many calls make a repeat long enough for the clock."""
    for _ in range(warmup):
        seconds = _elapsed(fn, 1)
    return max(1, round(MIN_REPEAT_SECONDS / max(seconds, 1e-9)))
