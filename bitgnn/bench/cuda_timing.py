"""Timing on a CUDA device by events: contenders interleaved, replayed as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bitgnn.measure.timing import MIN_REPEATS, Timing

# A repeat lasts at least this long, or the launch of the graph would be part of it.
MIN_REPEAT_SECONDS = 1e-3
MAX_CALLS = 200


@dataclass(frozen=True)
class Contender:
    """One function made ready for timing.

    Attributes:
        run: Queues ``calls`` calls of the function on the current stream.
        calls: How many.
        captured: Whether they are one CUDA graph; else they are launched one by one.
    """

    run: Callable[[], Any]
    calls: int
    captured: bool


def compare_on_cuda(
    functions: Mapping[str, Callable[[], Any]], *, warmup: int = 3, repeats: int = 15
) -> tuple[dict[str, Timing], dict[str, bool]]:
    """Times several functions round-robin on the current device, caches warm.

    Each function's calls are captured in one CUDA graph where it allows that, so that Python and
    launch overhead are no part of the time.

    Args:
        functions: Name to function; each queues its work on the current stream.
        warmup: Untimed calls before the first round, at least 1.
        repeats: Rounds, at least 7.

    Returns:
        Name to :class:`~bitgnn.measure.timing.Timing`, and name to whether a graph was replayed.

    Raises:
        ValueError: ``warmup`` or ``repeats`` is too small, or there is nothing to time.
    """
    if repeats < MIN_REPEATS:
        raise ValueError(f"bench: repeats must be at least {MIN_REPEATS}, got {repeats}")
    if warmup < 1 or not functions:
        raise ValueError(f"bench: needs a function and warmup of at least 1, got {warmup}")
    ready = {name: _prepare(fn, warmup) for name, fn in functions.items()}
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, contender in ready.items():
            contender.run()
            seconds[name].append(_elapsed(contender.run) / contender.calls)
    times = {name: Timing(tuple(seconds[name]), ready[name].calls) for name in functions}
    return times, {name: contender.captured for name, contender in ready.items()}


def _elapsed(run: Callable[[], Any]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3


def _prepare(fn: Callable[[], Any], warmup: int) -> Contender:
    for _ in range(warmup):
        fn()
    torch.cuda.synchronize()
    wanted = MIN_REPEAT_SECONDS / max(_elapsed(fn), 1e-7)
    calls = max(1, min(MAX_CALLS, round(wanted)))
    graph = _capture(fn, calls)
    if graph is not None:
        return Contender(graph.replay, calls, captured=True)

    def run() -> None:
        for _ in range(calls):
            fn()

    return Contender(run, calls, captured=False)


def _capture(fn: Callable[[], Any], calls: int) -> torch.cuda.CUDAGraph | None:
    """A graph of ``calls`` calls, or None where one of them cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(calls):
                fn()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    graph.replay()
    torch.cuda.synchronize()
    return graph
