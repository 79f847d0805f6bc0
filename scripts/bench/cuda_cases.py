"""What a CUDA benchmark compares, with goals and ceilings, and the record of one comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.cases import ratio
from bench.report import format_reached
from bitgnn.measure.clock import CaptureError, Clock, Ready
from bitgnn.measure.timing import Timing


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

    def reached(
        self, seconds: float | None, peer_seconds: float | None, rate: float | None
    ) -> float | None:
        """The part that was reached, 1 or more where all of it was; None where not measured."""
        if self.kind == "seconds":
            return None if seconds is None else self.value / seconds
        if self.kind == "rate":
            return None if rate is None else rate / self.value
        if seconds is None or peer_seconds is None:
            return None
        return peer_seconds / seconds / self.value


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

    Returns:
        Name to timing, and name to whether a graph was replayed.
    """
    clock = Clock("cuda")
    ready: dict[str, Ready] = {}
    captured: dict[str, bool] = {}
    for name, fn in functions.items():
        try:
            ready[name], captured[name] = clock.prepare(fn, captured=True), True
        except CaptureError:
            ready[name], captured[name] = clock.prepare(fn), False
    times, failed = clock.rounds(ready, repeats)
    for error in failed.values():
        raise error
    return times, captured


def run_case(case: CudaCase, **timing: Any) -> dict[str, Any]:
    """Checks and times one case.

    Returns:
        A JSON-ready record with all repeats of all contenders; ``reached`` is the part of the goal
        that was reached, 1 or more where all of it was.
    """
    if case.check is not None and not case.check():
        raise RuntimeError(f"bench: {case.name} gives a wrong result")
    times, captured = compare_on_cuda({"ours": case.ours, **case.baselines}, **timing)
    ours = times.pop("ours")
    best = min(times, key=lambda name: times[name].median) if times else None
    rate = None if case.work is None else case.work / ours.median
    reached = None
    if case.goal is not None:
        peer = case.goal.baseline or best
        peer_seconds = None if peer is None else times[peer].median
        reached = case.goal.reached(ours.median, peer_seconds, rate)
    return {
        "group": case.group,
        "name": case.name,
        "goal": None if case.goal is None else vars(case.goal),
        "reached": reached,
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
