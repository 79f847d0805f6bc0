"""Host time of calls: from a call to its result, and of calls that are queued without waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from bench.cases import reason_of
from bitgnn.measure.timing import LONG_SECONDS, Clock, Timing

__all__ = ["WAYS", "Call", "captured", "time_calls"]

Call = Callable[[], Any]
WAYS = ("call", "queued")
"""Each call waited for, and many of them before the device is waited for once."""
REPEAT_SECONDS = 5e-3
WARM_UPS = 10


def time_calls(
    calls: Iterable[tuple[str, Call]], clock: Clock, repeats: int, ways: Sequence[str] = WAYS
) -> tuple[dict[str, dict[str, Timing]], dict[str, str]]:
    """Time calls in turns, every way in each round."""
    runs: dict[tuple[str, str], tuple[Call, int]] = {}
    failures = {}
    for name, call in calls:
        try:
            _warm_up(call)
            runs |= {(name, way): _repeated(call, way == "call", clock.device) for way in ways}
        except Exception as error:  # the others are worth having
            clock.recover()
            failures[name] = reason_of(error)
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in runs}
    for _ in range(repeats):
        for key, (run, count) in runs.items():
            if not seconds[key] or seconds[key][-1] < LONG_SECONDS:
                run()  # warm after the others
            start = time.perf_counter()
            run()
            seconds[key].append((time.perf_counter() - start) / count)
    found: dict[str, dict[str, Timing]] = {}
    for (name, way), (_, count) in runs.items():
        found.setdefault(name, {})[way] = Timing(tuple(seconds[name, way]), count)
    return found, failures


def _warm_up(call: Call) -> None:
    for _ in range(WARM_UPS):
        start = time.perf_counter()
        call()
        if time.perf_counter() - start > LONG_SECONDS:
            break


def _repeated(call: Call, waits: bool, device: str) -> tuple[Call, int]:
    """A call repeated, and how often."""
    wait = torch.cuda.synchronize if device == "cuda" else _nothing
    wait()
    start = time.perf_counter()
    call()
    wait()
    count = max(1, round(REPEAT_SECONDS / max(time.perf_counter() - start, 1e-9)))

    def run_waiting() -> None:
        for _ in range(count):
            call()
            wait()

    def run_queued() -> None:
        for _ in range(count):
            call()
        wait()

    return run_waiting if waits else run_queued, count


def _nothing() -> None:
    """A CPU has done its work when a call returns."""


def captured(call: Call) -> Call:
    """The replay of a call, captured when it is first used."""
    held: list[tuple[torch.cuda.CUDAGraph, Any]] = []

    def replay() -> Any:
        if not held:
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for _ in range(3):
                    call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                output = call()
            held.append((graph, output))
        held[0][0].replay()
        return held[0][1]

    return replay
