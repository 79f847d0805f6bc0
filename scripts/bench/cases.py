"""What a benchmark compares: a case with its contenders, and the loop that times many cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bitgnn.measure.timing import Timing, compare


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        group: Heading it belongs to, such as ``"BMM"``.
        name: What is measured, with its shape.
        ours: The function under test.
        baselines: Name to function; the fastest one is what the ratio is taken against.
        target: Ratio to reach, None where none is set.
        check: Returns whether the result under test is right; run once before timing.
        details: Anything else worth keeping with the numbers.
    """

    group: str
    name: str
    ours: Callable[[], Any]
    baselines: Mapping[str, Callable[[], Any]]
    target: float | None = None
    check: Callable[[], bool] | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Skipped:
    """A comparison that could not be made here, and why."""

    group: str
    name: str
    reason: str


def ratio(ours: Timing, baseline: Timing) -> float:
    """How many times faster ``ours`` is, by medians."""
    return baseline.median / ours.median


def run_case(case: Case, **timing: Any) -> dict[str, Any]:
    """Checks and times one case.

    Returns:
        A JSON-ready record with all repeats of all contenders.
    """
    if case.check is not None and not case.check():
        raise RuntimeError(f"bench: {case.name} gives a wrong result")
    times = compare({"ours": case.ours, **case.baselines}, **timing)
    ours = times.pop("ours")
    best = min(times, key=lambda name: times[name].median)
    return {
        "group": case.group,
        "name": case.name,
        "target": case.target,
        "checked": case.check is not None,
        "ratio": ratio(ours, times[best]),
        "best_baseline": best,
        "ours": ours.to_dict(),
        "baselines": {name: timing.to_dict() for name, timing in times.items()},
        **case.details,
    }


def run_cases(
    cases: Iterable[Any],
    progress: Callable[[str], None] = print,
    *,
    run: Callable[..., dict[str, Any]] = run_case,
    describe: Callable[[dict[str, Any]], str] | None = None,
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
        progress((describe or _line)(record))
        results.append(record)
    return {"results": results, "skipped": skipped}


def _line(record: dict[str, Any]) -> str:
    noisy = any(t["noisy"] for t in [record["ours"], *record["baselines"].values()])
    return (
        f"{record['group']}: {record['name']}: {record['ratio']:.2f}x {record['best_baseline']}"
        + (f" (target {record['target']:g})" if record["target"] is not None else "")
        + (" [noisy]" if noisy else "")
    )
