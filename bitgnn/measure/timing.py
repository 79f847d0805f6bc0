"""Times functions in turns, every repeat kept: called from Python, or replayed as CUDA graphs."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bitgnn._collector import collector_paused

MIN_REPEATS = 7
REPEAT_SECONDS = {"cpu": 10e-3, "cuda": 1e-3}
"""A repeat lasts at least this long, or clock, scheduler and launch would be a visible part of it:
of a shorter function it is several calls."""
MAX_CAPTURED = 200
"""Calls in one CUDA graph."""
LONG_SECONDS = 20e-3
"""Calls this long are neither warmed up nor settled more than once."""
WARM_UPS = 3
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


class CaptureError(RuntimeError):
    """A call could not be captured in a CUDA graph; the message says why."""


@dataclass(frozen=True)
class Ready:
    """A call made ready for timing.

    Attributes:
        run: does ``calls`` calls.
        once: does a single one.
        calls: how many are in a repeat.
        seconds: of a call, as estimated while it was made ready.
        fn: what was captured: it keeps what the replays read and write.
    """

    run: Callable[[], Any]
    once: Callable[[], Any]
    calls: int
    seconds: float
    fn: Callable[[], Any]


class Clock:
    """Time on one device: wall clock on the CPU, events on CUDA.

    Args:
        device: ``"cpu"`` or ``"cuda"``.
        repeat_seconds: how long a repeat lasts at least; None is :data:`REPEAT_SECONDS`.
    """

    def __init__(self, device: str, repeat_seconds: float | None = None) -> None:
        self.device = device
        self._repeat_seconds = repeat_seconds

    def elapsed(self, run: Callable[[], Any]) -> float:
        """Seconds until everything that ``run`` began is done."""
        if self.device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) * 1e-3
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    def recover(self) -> None:
        """Gives memory back behind a failure.

        Raises:
            torch.AcceleratorError: the device is of no use to this process any more.
        """
        gc.collect()
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    def prepare(self, fn: Callable[[], Any], *, captured: bool = False) -> Ready:
        """Warms a call up, captures it where asked, and finds how many calls make a repeat.

        Args:
            fn: queues or does one forward; it ran before, so that its caches are there.
            captured: measure it inside a CUDA graph, without Python and launches; else it is
                called from Python, one call after the other.

        Raises:
            CaptureError: it cannot be captured.
            Exception: whatever the call itself raises.
        """
        seconds = 0.0
        for _ in range(WARM_UPS):
            seconds = self.elapsed(fn)
            if seconds > LONG_SECONDS:
                break
        once = fn
        if captured:
            once = _capture(fn, 1).replay
            once()
            seconds = self.elapsed(once)
        lasting = REPEAT_SECONDS[self.device]
        if self._repeat_seconds is not None:
            lasting = self._repeat_seconds
        calls = max(1, round(lasting / max(seconds, 1e-9)))
        calls = min(calls, MAX_CAPTURED) if captured else calls
        if captured and calls > 1:
            return Ready(_capture(fn, calls).replay, once, calls, seconds, fn)

        def run() -> None:
            for _ in range(calls):
                once()

        return Ready(run, once, calls, seconds, fn)

    def rounds(
        self, ready: Mapping[str, Ready], repeats: int, *, cold: bool = False
    ) -> tuple[dict[str, Timing], dict[str, Exception]]:
        """Times all calls round-robin, so that drift of the machine meets all of them alike.

        Args:
            ready: calls by name.
            repeats: rounds.
            cold: empty the caches in front of each repeat, which is then a single call; else
                another repeat of the same call stands in front of it, unless calls are long.

        Returns:
            Name to timing; and for those that failed on the way, which are left out of further
            rounds, name to exception.
        """
        seconds: dict[str, list[float]] = {name: [] for name in ready}
        failed: dict[str, Exception] = {}
        evict = self._evictor() if cold else None
        chosen = {n: replace(r, run=r.once, calls=1) if cold else r for n, r in ready.items()}
        for _ in range(repeats):
            for name, entry in chosen.items():
                if name in failed:
                    continue
                try:
                    if evict is not None:
                        evict()
                    elif entry.seconds < LONG_SECONDS:
                        entry.run()
                    seconds[name].append(self.elapsed(entry.run) / entry.calls)
                except Exception as error:
                    failed[name] = error
                    self.recover()
        done = [name for name in ready if name not in failed]
        return {n: Timing(tuple(seconds[n]), chosen[n].calls, cold) for n in done}, failed

    def _evictor(self) -> Callable[[], Any]:
        """A function that pushes everything else out of the device's caches."""
        if self.device == "cpu":
            return cache_evictor()
        size = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        buffer = torch.zeros(4 * size, dtype=torch.uint8, device="cuda")
        return buffer.zero_


def _capture(fn: Callable[[], Any], calls: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    try:
        with collector_paused(), torch.cuda.graph(graph):
            for _ in range(calls):
                fn()
    except RuntimeError as error:
        torch.cuda.synchronize()
        raise CaptureError(f"cannot be captured: {error}") from error
    return graph


def compare(
    functions: Mapping[str, Callable[[], Any]],
    *,
    repeats: int = 15,
    cold: bool = False,
    device: str = "cpu",
) -> dict[str, Timing]:
    """Times several functions round-robin, so that drift of the machine meets all of them alike.

    A warm repeat is preceded by an untimed one, since another function ran in between. On CUDA
    calls are captured in one graph, so that Python and launches are no part of the time.

    Args:
        functions: Name to function.
        repeats: Rounds, at least 7.
        cold: Empty the caches before each repeat; each repeat is then a single call.
        device: ``"cpu"`` or ``"cuda"``.

    Returns:
        Name to :class:`Timing`, in the given order.

    Raises:
        ValueError: ``repeats`` is too small, or there is nothing to time.
        CaptureError: a function cannot be captured.
        Exception: whatever a function raises.
    """
    if repeats < MIN_REPEATS:
        raise ValueError(f"compare: repeats must be at least {MIN_REPEATS}, got {repeats}")
    if not functions:
        raise ValueError("compare: functions is empty")
    clock = Clock(device)
    captured = device == "cuda"
    ready = {name: clock.prepare(fn, captured=captured) for name, fn in functions.items()}
    times, failed = clock.rounds(ready, repeats, cold=cold)
    for error in failed.values():
        raise error
    return times
