"""Latency of whole forwards: each call waited for, contenders in turns, noise of the machine."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from bitgnn.measure.timing import LONG_SECONDS, WARM_UPS, CaptureError, Clock, Timing

__all__ = ["REPEAT_SECONDS", "ROUNDS", "WARM_UPS", "glance", "gpu_seconds", "measure_in_turns",
           "noise"]  # fmt: skip

ROUNDS = 7
REPEAT_SECONDS = {"cpu": 5e-3, "cuda": 1e-3}
"""A repeat lasts about so long."""
MOST_CALLS = 50
NOISY_SHARE = 0.25
"""Part of the timings that may be noisy before the machine is."""
BUSY = 1.5
"""Load a core from which on the machine has other things to do."""
GLANCES = 3
"""Forwards from which the least is taken: enough to tell which plans to measure."""


def glance(run: Callable[[], Any], device: torch.device) -> float:
    """Least seconds of a few forwards, each from its call until its result is there."""
    clock = Clock(device.type)
    seconds = clock.elapsed(run)
    if seconds > LONG_SECONDS and device.type == "cpu":
        return seconds
    return min(clock.elapsed(run) for _ in range(GLANCES))


def gpu_seconds(run: Callable[[], Any], device: torch.device) -> float | None:
    """Median seconds that a GPU works on one forward: inside of a CUDA graph, host left out.

    Args:
        run: does one forward, and may be captured.
        device: where it runs.

    Returns:
        None on a CPU, and for what cannot be captured.
    """
    if device.type != "cuda":
        return None
    clock = Clock(device.type)
    with torch.inference_mode(), torch.cuda.device(device):
        run()
        try:
            ready = clock.prepare(run, captured=True)
        except CaptureError:
            return None
        times, failed = clock.rounds({"": ready}, ROUNDS)
    return None if failed else times[""].median


def measure_in_turns(
    runs: Sequence[Callable[[], Any]],
    device: torch.device,
    *,
    rounds: int = ROUNDS,
    seconds: float | None = None,
    progress: Callable[[], Any] = lambda: None,
) -> list[Timing]:
    """Latency of several forwards, round-robin, so that drift of the machine meets all alike.

    On CUDA each forward is begun on an idle device, so that its launches count.

    Args:
        runs: each does one forward.
        device: where they run.
        rounds: repeats of each.
        seconds: no further round is begun behind so many; the first one is always done.
        progress: called after each repeat.

    Returns:
        A timing for each run.

    Raises:
        ValueError: ``rounds`` is below 1.
        Exception: whatever a run raises.
    """
    if rounds < 1:
        raise ValueError(f"measure_in_turns: rounds must be at least 1, got {rounds}")
    clock = Clock(device.type, REPEAT_SECONDS[device.type])
    begin = time.perf_counter()
    calls = [min(MOST_CALLS, clock.prepare(run).calls) for run in runs]
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
    """What to say of a machine that was not quiet while it was timed; None of a quiet one."""
    noisy = sum(timing.noisy for timing in timings)
    reasons = []
    if noisy > NOISY_SHARE * len(timings):
        reasons.append(f"{noisy} of {len(timings)} timings spread by more than a quarter")
    load, cores = _load(), os.cpu_count() or 1  # the load is the whole machine's
    if load is not None and load > BUSY * cores:
        reasons.append(f"its load is {load:.1f} on {cores} cores")
    if not reasons:
        return None
    return f"the machine is noisy: {' and '.join(reasons)}; differences of latency may be chance"


def _load() -> float | None:
    """Mean number of processes that want to run, None where the system does not tell."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None
