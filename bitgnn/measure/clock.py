"""Times many forms of one forward in turns: called from Python, or replayed as CUDA graphs."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from bitgnn._collector import collector_paused
from bitgnn.measure.timing import MIN_REPEAT_SECONDS, Timing, cache_evictor

__all__ = ["LONG_SECONDS", "CaptureError", "Clock", "Ready"]

REPEAT_SECONDS = {"cpu": MIN_REPEAT_SECONDS, "cuda": 1e-3}
"""A repeat lasts at least this long, or launching it would be part of it."""
MAX_CALLS = 200
LONG_SECONDS = 20e-3
"""Calls this long are neither warmed up nor settled more than once."""
WARM_UPS = 3


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
        calls = max(1, min(MAX_CALLS, round(lasting / max(seconds, 1e-7))))
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
