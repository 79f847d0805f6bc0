"""Writes what a tuner found: table, CSV, JSON with every repeat, chart and plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bitgnn._files import write_atomically
from bitgnn.measure.environment import environment
from bitgnn.measure.report import csv_text, format_bytes, format_seconds, write_json
from bitgnn.tune.chart import draw_points
from bitgnn.tune.result import Point, TuneResult, cells_of

__all__ = ["result_record", "result_table", "write_result"]

COLUMNS = (
    "name", "letters", "order", "features", "fine_tuned_epochs", "validation", "test",
    "latency_seconds", "estimate_seconds", "memory_bytes", "measured", "meets_limits", "on_front",
    "recommended",
)  # fmt: skip
MARK = "x"
RECOMMENDED, NEAREST = "*", "nearest"


def result_table(result: TuneResult, most: int) -> Table:
    """Baselines, then plans, the best first; the front is marked.

    Args:
        result: of a search.
        most: plans shown.
    """
    is_kept = result.missed is None
    title = f"{result.workload['model']}: best {result.objective}"
    table = Table(box=SIMPLE_HEAD, title=title, caption=_legend(result))
    for name in ("", "letters", "order, features"):
        table.add_column(name)
    for name in ("validation", "latency", "memory", "limits"):
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
        text += f", counted from {result.counted_from} ({100 * result.reference:.2f}%)"
    return text


def _row(point: Point, mark: str, verdict: str) -> list[str]:
    what = ["", point.name]
    if point.plan is not None:
        letters, *ways = cells_of(point.plan)
        what = [letters, ", ".join(filter(None, ways))]
    return [
        mark,
        *what,
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
        "counted_from": result.counted_from,
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
                "estimate": point.estimate,
                "memory": point.memory,
                "fine_tuned_epochs": point.epochs,
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


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _csv(result: TuneResult) -> str:
    """Every point, then every plan that was timed briefly alone."""
    front = {id(point) for point in result.front}
    rows: list[Sequence[Any]] = [COLUMNS]
    for point in result.points:
        plan, score = point.plan, point.score
        is_best = point is result.recommended and result.missed is None
        marks = (True, result.meets(point), id(point) in front, is_best)
        rows.append([
            point.name, *(["", "", ""] if plan is None else cells_of(plan)), point.epochs,
            score.validation, _finite(score.test), point.timing.median, point.estimate,
            int(point.memory), *(MARK if mark else "" for mark in marks),
        ])  # fmt: skip
    rows += [
        [
            "timed briefly", *cells_of(trial.plan), 0, trial.score.validation,
            _finite(trial.score.test), "", trial.estimate, int(trial.memory), "", "", "", "",
        ]
        for trial in result.trials
        if trial.timing is None
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
