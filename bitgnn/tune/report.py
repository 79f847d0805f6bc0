"""Says and writes what a tuner found: reasons, table, CSV, JSON, chart and plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bitgnn._files import write_atomically
from bitgnn.measure.report import csv_text, environment, format_bytes, format_seconds, write_json
from bitgnn.tune.chart import draw_points
from bitgnn.tune.objective import Measures
from bitgnn.tune.result import Point, TuneResult, cells_of

LEAST_POINTS = 0.005
"""Differences of accuracy below this are none."""


def reasons_for(result: TuneResult) -> tuple[str, ...]:
    """Why the recommended plan, in sentences; the first one says whether limits are missed."""
    best = result.recommended
    assert best.plan is not None
    found = best.measures
    facts = (
        f"{format_seconds(found.latency)} per forward pass, {format_bytes(found.memory)}, "
        f"{100 * found.accuracy:.2f}% on the validation nodes, {_change(result, found.accuracy)}"
    )
    if result.missed is None:
        limits = " and ".join(map(str, result.constraints)) or "no limits"
        lines = [
            f"Take {_said(best)}.",
            f"It has the best {result.objective} of {_distilled(result)} distilled plans under "
            f"{limits}: {facts}.",
        ]
    else:
        lines = [
            f"No plan is recommended: {result.missed}.",
            f"The plan nearest to the limits is {_said(best)}: {facts}.",
        ]
    if result.doubt is not None and not result.meets(best):
        lines.append(f"Accuracies are lower than they can be: {result.doubt}.")
    if best.gpu_seconds is not None:
        lines.append(
            f"Of the {format_seconds(found.latency)} from a call until its result is there the GPU "
            f"works {format_seconds(best.gpu_seconds)}; the rest is the host's, which launches and "
            "waits."
        )
    if best.student is not None:
        lines.append(f"It was distilled in these letters for {best.student.epochs} epochs.")
    if result.missed is None:
        lines += [f"{_against(found, point)}." for point in result.points if point.plan is None]
        lines += _next_best(result)
    lines += result.remarks
    share = result.measured / max(result.space, 1)
    lines.append(
        f"{result.measured} of {result.space} plans were measured in turns ({share:.0%}), "
        f"{len(result.trials)} timed briefly, in {result.seconds:.0f} s."
    )
    if not result.complete:
        lines.append("The time was up before everything was looked at; more may find better.")
    if result.noise:
        lines.append(f"{result.noise[0].upper()}{result.noise[1:]}.")
    return tuple(lines)


def _change(result: TuneResult, accuracy: float) -> str:
    """An accuracy beside the one that the loss is counted from."""
    drop = 100 * (result.reference - accuracy)
    change = f"{drop:.2f} points below" if drop > 0 else f"{-drop:.2f} points above"
    change = "the same as" if abs(drop) < LEAST_POINTS else change
    score = "" if abs(drop) < LEAST_POINTS else f" ({100 * result.reference:.2f}%)"
    return f"{change} the float model{score}"


def _said(point: Point) -> str:
    """A plan in words, with the width where it is another one."""
    assert point.plan is not None
    assert point.student is not None
    widen = point.student.workload.widen
    wider = "" if widen == 1 else f", {widen:g} times the hidden channels"
    return f"{point.plan.describe()}{wider}"


def _distilled(result: TuneResult) -> int:
    return sum(point.plan is not None for point in result.points)


def _against(found: Measures, point: Point) -> str:
    """The recommended plan beside a baseline."""
    other = point.measures
    points = 100 * (found.accuracy - other.accuracy)
    return (
        f"Beside {point.name}: {other.latency / found.latency:.2f} times as fast, "
        f"{other.memory / found.memory:.2f} times less memory, {points:+.2f} points of accuracy"
    )


def _next_best(result: TuneResult) -> list[str]:
    """Which faster or smaller plan was passed over, and why."""
    best = result.recommended.measures.rank(result.objective)
    passed = [
        point
        for point in result.points
        if point.plan is not None
        and point.measures.rank(result.objective) < best
        and not result.meets(point)
    ]
    if not passed:
        return []
    point = min(passed, key=lambda p: p.measures.rank(result.objective))
    missed = [
        f"{limit.what} {limit.show(limit.value(point.measures, result.reference))}"
        for limit in result.constraints
        if not limit.is_met(point.measures, result.reference)
    ]
    return [
        f"Passed over: {_said(point)} with {format_seconds(point.timing.median)}, "
        f"for it misses a limit ({', '.join(missed)})."
    ]


COLUMNS = (
    "name", "widen", "letters", "order", "features", "distilled_epochs", "validation", "test",
    "latency_seconds", "estimate_seconds", "memory_bytes", "distilled", "meets_limits", "on_front",
    "recommended",
)  # fmt: skip
MARK = "x"
RECOMMENDED, NEAREST = "*", "nearest"


def result_table(result: TuneResult, most: int) -> Table:
    """The baseline, then plans, the best first; the front is marked.

    Args:
        result: of a search.
        most: plans shown.
    """
    is_kept = result.missed is None
    title = f"{result.workload['model']}: best {result.objective}"
    table = Table(box=SIMPLE_HEAD, title=title, caption=_legend(result))
    for name in ("", "letters", "order, features"):
        table.add_column(name)
    for name in ("width", "validation", "latency", "memory", "limits"):
        table.add_column(name, justify="right")
    front = {id(point) for point in result.front}
    plans = [point for point in result.points if point.plan is not None]
    plans.sort(key=lambda p: (not result.meets(p), p.measures.rank(result.objective)))
    others = [point for point in plans if point is not result.recommended]
    others.sort(key=lambda point: id(point) not in front)  # stable: best first within each
    for point in [
        *(p for p in result.points if p.plan is None), result.recommended, *others[:most],
    ]:  # fmt: skip
        mark = "front" if id(point) in front else ""
        if point is result.recommended:
            mark = RECOMMENDED if is_kept else NEAREST
        style = "bold" if point is result.recommended else None
        table.add_row(*_row(point, mark, result.verdict(point)), style=style)
    return table


def _legend(result: TuneResult) -> str:
    """What the marks mean, and what losses of accuracy count from."""
    chosen = f"{RECOMMENDED}: recommended"
    if result.missed is not None:
        chosen = f"{NEAREST}: closest to the limits, which no plan is known to keep"
    limits = ", ".join(map(str, result.constraints)) or "none"
    text = f"{chosen}; front: nothing else is at least as good in everything; limits: {limits}"
    if any(limit.what == "accuracy drop" for limit in result.constraints):
        text += f", counted from the float model ({100 * result.reference:.2f}%)"
    return text


def _row(point: Point, mark: str, verdict: str) -> list[str]:
    what = ["", point.name]
    if point.plan is not None:
        letters, *ways = cells_of(point.plan)
        what = [letters, ", ".join(filter(None, ways))]
    return [
        mark,
        *what,
        "" if point.student is None else f"×{point.student.workload.widen:g}",
        f"{100 * point.score.validation:.2f}%",
        format_seconds(point.timing.median),
        format_bytes(point.memory),
        verdict,
    ]


def result_record(result: TuneResult) -> dict[str, Any]:
    """Everything in plain values: machine, sizes, limits, and every repeat of every point."""
    front = {id(point) for point in result.front}
    return {
        "benchmark": "bitgnn tune result",
        "environment": environment(),
        "workload": dict(result.workload),
        "objective": result.objective,
        "constraints": [str(limit) for limit in result.constraints],
        "reference": result.reference,
        "missed": result.missed,
        "space": result.space,
        "measured": result.measured,
        "seconds": result.seconds,
        "seed": result.seed,
        "complete": result.complete,
        "noise": result.noise,
        "reasons": list(result.reasons),
        "recommended": result.plan.to_dict(),
        "points": [
            {
                "name": point.name,
                "plan": None if point.plan is None else point.plan.to_dict(),
                "validation": point.score.validation,
                "test": _finite(point.score.test),
                "latency": point.timing.to_dict(),
                "gpu_seconds": point.gpu_seconds,
                "memory": point.memory,
                **_student_record(point),
                "meets_limits": result.meets(point),
                "on_front": id(point) in front,
            }
            for point in result.points
        ],
        "trials": [
            {**trial.to_dict(), "test": _finite(trial.score.test)} for trial in result.trials
        ],
        "failed": [
            {"plan": plan.to_dict(), "reason": reason} for plan, reason in result.failed.items()
        ],
    }


def _student_record(point: Point) -> dict[str, Any]:
    """Width and epochs of a point; none of the baseline."""
    student = point.student
    return {
        "widen": None if student is None else student.workload.widen,
        "distilled_epochs": None if student is None else student.epochs,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _csv(result: TuneResult) -> str:
    """Every point, then every plan as the search saw it, in the weights of another one."""
    front = {id(point) for point in result.front}
    rows: list[Sequence[Any]] = [COLUMNS]
    for point in result.points:
        plan, score = point.plan, point.score
        is_best = point is result.recommended and result.missed is None
        marks = (True, result.meets(point), id(point) in front, is_best)
        widen, epochs = _student_record(point).values()
        rows.append([
            point.name, widen, *(["", "", ""] if plan is None else cells_of(plan)), epochs,
            score.validation, _finite(score.test), point.timing.median, "",
            int(point.memory), *(MARK if mark else "" for mark in marks),
        ])  # fmt: skip
    rows += [
        [
            "not distilled", trial.widen, *cells_of(trial.plan), "", trial.score.validation,
            _finite(trial.score.test), "" if trial.timing is None else trial.timing.median,
            trial.estimate, int(trial.memory), "", "", "", "",
        ]
        for trial in result.trials
    ]  # fmt: skip
    return csv_text(rows)


def write_result(result: TuneResult, folder: Path) -> list[Path]:
    """Write all files of a result, see :meth:`TuneResult.save`."""
    folder.mkdir(parents=True, exist_ok=True)
    record, table, chart = (folder / f"tune.{ending}" for ending in ("json", "csv", "png"))
    write_json(record, result_record(result))
    write_atomically(table, _csv(result).encode())
    write_atomically(chart, draw_points(result))
    return [record, table, chart, result.plan.save(folder / "plan.yaml")]
