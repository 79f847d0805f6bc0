"""Times functions in turns: repeats from Python or as CUDA graphs, and forwards waited for."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bitgnn._capture import capturing

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
ROUNDS = 7
FORWARD_SECONDS = {"cpu": 5e-3, "cuda": 1e-3}
"""Seconds that a repeat of a forward lasts, by device; it has at most ``MOST_FORWARDS`` calls."""
MOST_FORWARDS = 50
NOISY_SHARE, BUSY = 0.25, 1.5
"""Part of the timings that may be noisy, and load a core, before the machine is."""


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one function, one entry a repeat, in the order they were taken.

    Each repeat has so many ``calls``; ``cold`` where the caches were emptied before it.
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
        """True if the 90 % quantile exceeds the 10 % quantile by more than a quarter."""
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


class CaptureError(RuntimeError):
    """A call could not be captured in a CUDA graph; the message says why."""


@dataclass(frozen=True)
class Ready:
    """A call made ready for timing.

    ``run`` does ``calls`` of them, which make a repeat, ``once`` a single one; ``seconds`` are
    those of a call as estimated meanwhile. ``fn`` keeps what replays read and write.
    """

    run: Callable[[], Any]
    once: Callable[[], Any]
    calls: int
    seconds: float
    fn: Callable[[], Any]


class Clock:
    """Time on one device, ``"cpu"`` or ``"cuda"``: wall clock on the CPU, events on CUDA.

    A repeat lasts ``repeat_seconds`` at least; None is :data:`REPEAT_SECONDS`.
    """

    def __init__(self, device: str, repeat_seconds: float | None = None) -> None:
        self.device = device
        self._repeat_seconds = repeat_seconds

    def elapsed(self, run: Callable[[], Any]) -> float:
        """Seconds until all work that ``run`` began is done."""
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
        """Free memory after a failure; raises if the device is unusable."""
        gc.collect()
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    def prepare(self, fn: Callable[[], Any], *, captured: bool = False) -> Ready:
        """Warm a call up and find how many of them make a repeat.

        It ran before, so that its caches are there. With ``captured`` it is measured inside a CUDA
        graph, without Python and launches, or a :class:`CaptureError` is raised; else it is called
        from Python, one call after the other.
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
        lasting = self._repeat_seconds
        if lasting is None:
            lasting = REPEAT_SECONDS[self.device]
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
        """Time all calls round-robin, so that drift of the machine meets all of them alike.

        Before each repeat the caches are emptied (``cold``, a repeat is a single call then),
        or stands another one of the same call, unless calls are long. Gives timings by name, and
        the exceptions of those that failed on the way, which are left out of further rounds.
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
        """A function that evicts the caches by streaming a larger buffer."""
        if self.device == "cuda":
            size = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        else:
            size = _last_level_cache_bytes()
        buffer = torch.zeros(4 * size, dtype=torch.uint8, device=self.device)
        return lambda: buffer.add_(1)


def _last_level_cache_bytes() -> int:
    """Size of the largest CPU cache."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        unit = {"K": 2**10, "M": 2**20}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM")) * unit)
    if not sizes and "SC_LEVEL3_CACHE_SIZE" in os.sysconf_names:
        sizes.append(os.sysconf("SC_LEVEL3_CACHE_SIZE"))
    return max([*sizes, 0]) or DEFAULT_CACHE_BYTES


def _capture(fn: Callable[[], Any], calls: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    try:
        with capturing(graph):
            for _ in range(calls):
                fn()
    except RuntimeError as error:
        torch.cuda.synchronize()
        raise CaptureError(f"cannot be captured: {error}") from error
    return graph


def compare(
    functions: Mapping[str, Callable[[], Any]], *, repeats: int = 15, device: str = "cpu"
) -> dict[str, Timing]:
    """Timings of several functions by name, taken in turns; see :meth:`Clock.rounds`.

    On CUDA calls are captured in one graph, so that Python and launches are no part of the time.
    Whatever a function raises is raised.
    """
    if repeats < MIN_REPEATS:
        raise ValueError(f"compare: repeats must be at least {MIN_REPEATS}, got {repeats}")
    if not functions:
        raise ValueError("compare: functions is empty")
    clock = Clock(device)
    captured = device == "cuda"
    ready = {name: clock.prepare(fn, captured=captured) for name, fn in functions.items()}
    times, failed = clock.rounds(ready, repeats)
    for error in failed.values():
        raise error
    return times


def measure_in_turns(
    runs: Sequence[Callable[[], Any]],
    device: torch.device,
    *,
    rounds: int = ROUNDS,
    seconds: float | None = None,
    progress: Callable[[], Any] = lambda: None,
) -> list[Timing]:
    """Latency of several forwards, round-robin, so that drift of the machine meets all alike.

    On CUDA each one is begun on an idle device, so that its launches count. After so many seconds
    no round is begun but the first; ``progress`` is called after each repeat.
    """
    if rounds < 1:
        raise ValueError(f"measure_in_turns: rounds must be at least 1, got {rounds}")
    clock = Clock(device.type, FORWARD_SECONDS[device.type])
    begin = time.perf_counter()
    calls = [min(MOST_FORWARDS, clock.prepare(run).calls) for run in runs]
    taken: list[list[float]] = [[] for _ in runs]
    for number in range(rounds):
        if number and seconds is not None and time.perf_counter() - begin > seconds:
            break
        for run, count, found in zip(runs, calls, taken, strict=True):
            if count > 1:
                run()  # the caches are those that another forward has left
            found.append(statistics.median(clock.elapsed(run) for _ in range(count)))
            progress()
    return [Timing(tuple(found), count) for found, count in zip(taken, calls, strict=True)]


def noise(timings: Sequence[Timing]) -> str | None:
    """Warning about a machine that was busy while it was timed; None if it was quiet."""
    noisy = sum(timing.noisy for timing in timings)
    reasons = []
    if noisy > NOISY_SHARE * len(timings):
        reasons.append(f"{noisy} of {len(timings)} timings spread by more than a quarter")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1  # both are the whole machine's
    if load > BUSY * cores:
        reasons.append(f"its load is {load:.1f} on {cores} cores")
    if not reasons:
        return None
    return f"the machine is noisy: {' and '.join(reasons)}; differences of latency may be chance"
