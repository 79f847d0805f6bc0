"""What a CUDA benchmark compares, with goals and ceilings, and the record of one comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.cases import ratio
from bench.report import format_reached
from bitgnn.measure.timing import Timing
from bitgnn.tune.clock import Call, CaptureError, Clock, Ready, prepare, rounds


@dataclass(frozen=True)
class Goal:
    """A figure to reach.

    Attributes:
        kind: "seconds" (at most), "ratio" (times faster than ``baseline``, at least) or "rate"
            (work a second, at least).
        value: the figure.
        baseline: of a ratio; None takes the fastest one.
    """

    kind: str
    value: float
    baseline: str | None = None


@dataclass(frozen=True)
class CudaCase:
    """One comparison on a CUDA device.

    Attributes:
        group: Heading it belongs to.
        name: What is measured, with its shape.
        ours: The function under test.
        baselines: Name to function.
        goal: Figure to reach, None where none is set.
        work: Operations, bytes or edges of one call, for a rate.
        unit: Of ``work``.
        ceiling_seconds: What the measured ceilings of the device allow at best.
        binds: Which ceiling that is.
        check: Returns whether the result under test is right; run once before timing.
        details: Anything else worth keeping with the numbers.
    """

    group: str
    name: str
    ours: Callable[[], Any]
    baselines: Mapping[str, Callable[[], Any]]
    goal: Goal | None = None
    work: float | None = None
    unit: str = ""
    ceiling_seconds: float | None = None
    binds: str = ""
    check: Callable[[], bool] | None = None
    details: dict[str, Any] = field(default_factory=dict)


def compare_on_cuda(
    functions: Mapping[str, Callable[[], Any]], *, repeats: int = 15
) -> tuple[dict[str, Timing], dict[str, bool]]:
    """Times several functions round-robin on the current device, caches warm.

    Each function's calls are captured in one CUDA graph where it allows that, so that Python and
    launch overhead are no part of the time.

    Args:
        functions: Name to function; each queues its work on the current stream.
        repeats: Rounds.

    Returns:
        Name to timing, and name to whether a graph was replayed.

    Raises:
        Exception: Whatever a function raises.
    """
    clock = Clock("cuda")
    ready: dict[str, Ready] = {}
    captured: dict[str, bool] = {}
    for name, fn in functions.items():
        try:
            ready[name], captured[name] = prepare(Call(fn, captured=True), clock), True
        except CaptureError:
            ready[name], captured[name] = prepare(Call(fn), clock), False
    times, failed = rounds(ready, clock, repeats)
    for error in failed.values():
        raise error
    return times, captured


def run_case(case: CudaCase, **timing: Any) -> dict[str, Any]:
    """Checks and times one case.

    Returns:
        A JSON-ready record with all repeats of all contenders; ``reached`` is the part of the goal
        that was reached, 1 or more where all of it was.

    Raises:
        RuntimeError: The case's own check failed; numbers of a wrong result mean nothing.
    """
    if case.check is not None and not case.check():
        raise RuntimeError(f"bench: {case.name} gives a wrong result")
    times, captured = compare_on_cuda({"ours": case.ours, **case.baselines}, **timing)
    ours = times.pop("ours")
    best = min(times, key=lambda name: times[name].median) if times else None
    rate = None if case.work is None else case.work / ours.median
    return {
        "group": case.group,
        "name": case.name,
        "goal": None if case.goal is None else vars(case.goal),
        "reached": None if case.goal is None else _reached(case, ours, times, rate),
        "checked": case.check is not None,
        "ratio": None if best is None else ratio(ours, times[best]),
        "best_baseline": best,
        "rate": rate,
        "unit": case.unit,
        "ceiling_seconds": case.ceiling_seconds,
        "ceiling_fraction": (
            None if case.ceiling_seconds is None else case.ceiling_seconds / ours.median
        ),
        "binds": case.binds,
        "in_graph": captured,
        "ours": ours.to_dict(),
        "baselines": {name: timing.to_dict() for name, timing in times.items()},
        **case.details,
    }


def _reached(
    case: CudaCase, ours: Timing, baselines: Mapping[str, Timing], rate: float | None
) -> float:
    goal = case.goal
    assert goal is not None
    if goal.kind == "seconds":
        return goal.value / ours.median
    if goal.kind == "rate":
        assert rate is not None
        return rate / goal.value
    best = min(baselines, key=lambda name: baselines[name].median)
    return ratio(ours, baselines[goal.baseline or best]) / goal.value


def describe(record: Mapping[str, Any]) -> str:
    """One line of a record for the terminal."""
    parts = [f"{record['group']}: {record['name']}: {record['ours']['median'] * 1e6:.2f} us"]
    if record["best_baseline"] is not None:
        parts.append(f"{record['ratio']:.2f}x {record['best_baseline']}")
    if record["ceiling_fraction"] is not None:
        parts.append(f"{record['ceiling_fraction']:.0%} of the ceiling")
    if record["reached"] is not None:
        parts.append(f"{format_reached(record['reached'])} of the goal")
    return ", ".join(parts) + (" [noisy]" if record["ours"]["noisy"] else "")
