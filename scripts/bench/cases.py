"""What a benchmark compares: a case with its contenders, its record, and the loop over many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.report import format_reached
from bitgnn.measure.clock import CaptureError, Clock, Ready
from bitgnn.measure.timing import Timing, compare


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
class Case:
    """One comparison.

    Attributes:
        group: Heading it belongs to, such as ``"BMM"``.
        name: What is measured, with its shape.
        ours: The function under test.
        baselines: Name to function; the fastest one is what the ratio is taken against.
        target: On the CPU, ratio to reach, None where none is set.
        goal: On CUDA, figure to reach, None where none is set.
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
    target: float | None = None
    goal: Goal | None = None
    work: float | None = None
    unit: str = ""
    ceiling_seconds: float | None = None
    binds: str = ""
    check: Callable[[], bool] | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Skipped:
    """A comparison that could not be made here, and why."""

    group: str
    name: str
    reason: str


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


def ratio(ours: Timing, baseline: Timing) -> float:
    """How many times faster ``ours`` is, by medians."""
    return baseline.median / ours.median


def _checked(case: Case) -> dict[str, Callable[[], Any]]:
    """Every function of a case whose result is right, ours first."""
    if case.check is not None and not case.check():
        raise RuntimeError(f"bench: {case.name} gives a wrong result")
    return {"ours": case.ours, **case.baselines}


def _record(case: Case, times: Mapping[str, Timing]) -> dict[str, Any]:
    """What the records of a case on both devices hold, with all repeats of all contenders."""
    peers = {name: timing for name, timing in times.items() if name != "ours"}
    best = min(peers, key=lambda name: peers[name].median) if peers else None
    return {
        "group": case.group,
        "name": case.name,
        "checked": case.check is not None,
        "ratio": None if best is None else ratio(times["ours"], peers[best]),
        "best_baseline": best,
        "ours": times["ours"].to_dict(),
        "baselines": {name: timing.to_dict() for name, timing in peers.items()},
        **case.details,
    }


def run_case(case: Case, **timing: Any) -> dict[str, Any]:
    """Checks and times one case on the CPU; a JSON-ready record."""
    return {**_record(case, compare(_checked(case), **timing)), "target": case.target}


def run_cuda_case(case: Case, **timing: Any) -> dict[str, Any]:
    """Checks and times one case on CUDA.

    Returns:
        A JSON-ready record; ``reached`` is the part of the goal that was reached, 1 or more where
        all of it was.
    """
    times, captured = compare_on_cuda(_checked(case), **timing)
    seconds = times["ours"].median
    record = _record(case, times)
    rate = None if case.work is None else case.work / seconds
    reached = None
    if case.goal is not None:
        peer = case.goal.baseline or record["best_baseline"]
        reached = case.goal.reached(seconds, None if peer is None else times[peer].median, rate)
    ceiling = case.ceiling_seconds
    return {
        **record,
        "goal": None if case.goal is None else vars(case.goal),
        "reached": reached,
        "rate": rate,
        "unit": case.unit,
        "ceiling_seconds": ceiling,
        "ceiling_fraction": None if ceiling is None else ceiling / seconds,
        "binds": case.binds,
        "in_graph": captured,
    }


def run_cases(
    cases: Iterable[Any],
    progress: Callable[[str], None] = print,
    *,
    run: Callable[..., dict[str, Any]] = run_case,
    **timing: Any,
) -> dict[str, list[dict[str, Any]]]:
    """Runs cases one after the other, dropping each case's data before the next is made.

    Returns:
        ``{"results": [...], "skipped": [...]}``.
    """
    results: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for case in cases:
        if isinstance(case, Skipped):
            progress(f"{case.group}: {case.name}: skipped, {case.reason}")
            skipped.append({"group": case.group, "name": case.name, "reason": case.reason})
            continue
        record = run(case, **timing)
        progress(describe(record))
        results.append(record)
    return {"results": results, "skipped": skipped}


def describe(record: Mapping[str, Any]) -> str:
    """One line of a record for the terminal."""
    parts = [f"{record['group']}: {record['name']}: {record['ours']['median'] * 1e6:.2f} us"]
    if record["best_baseline"] is not None:
        parts.append(f"{record['ratio']:.2f}x {record['best_baseline']}")
    if record.get("target") is not None:
        parts.append(f"target {record['target']:g}")
    if record.get("ceiling_fraction") is not None:
        parts.append(f"{record['ceiling_fraction']:.0%} of the ceiling")
    if record.get("reached") is not None:
        parts.append(f"{format_reached(record['reached'])} of the goal")
    noisy = any(t["noisy"] for t in [record["ours"], *record["baselines"].values()])
    return ", ".join(parts) + (" [noisy]" if noisy else "")
