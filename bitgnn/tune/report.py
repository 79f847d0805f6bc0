"""Writes what a tuner found: table, CSV, JSON with every repeat, chart and plan."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bitgnn._files import write_atomically
from bitgnn.measure.environment import environment
from bitgnn.measure.report import format_bytes, format_seconds, write_json
from bitgnn.tune.chart import draw_points
from bitgnn.tune.result import Point, TuneResult, letters_of, ways_of

__all__ = ["result_record", "result_table", "write_result"]

COLUMNS = (
    "name",
    "letters",
    "order",
    "features",
    "fine_tuned_epochs",
    "validation",
    "test",
    "latency_seconds",
    "estimate_seconds",
    "memory_bytes",
    "measured",
    "meets_limits",
    "on_front",
    "recommended",
)
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
    plan = point.plan
    what = ["", point.name] if plan is None else [letters_of(plan), _ways(plan)]
    return [
        mark,
        *what,
        f"{100 * point.score.validation:.2f}%",
        format_seconds(point.timing.median),
        format_bytes(point.memory),
        verdict,
    ]


def _ways(plan: Any) -> str:
    return ", ".join(cell for cell in ways_of(plan) if cell)


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
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for point in result.points:
        plan = point.plan
        writer.writerow(
            [
                point.name,
                *(["", "", ""] if plan is None else [letters_of(plan), *ways_of(plan)]),
                point.epochs,
                point.score.validation,
                _finite(point.score.test),
                point.timing.median,
                point.estimate,
                int(point.memory),
                *_marks(
                    True,
                    result.meets(point),
                    id(point) in front,
                    point is result.recommended and result.missed is None,
                ),
            ]
        )
    for trial in result.trials:
        if trial.timing is None:
            cells = [letters_of(trial.plan), *ways_of(trial.plan)]
            scores = [trial.score.validation, _finite(trial.score.test)]
            costs = ["", trial.estimate, int(trial.memory)]
            writer.writerow(["timed briefly", *cells, 0, *scores, *costs, *_marks(*[False] * 4)])
    return text.getvalue()


def _marks(*values: bool) -> Sequence[str]:
    return [MARK if value else "" for value in values]


def write_result(result: TuneResult, folder: Path) -> list[Path]:
    """Write all files of a result, see :meth:`TuneResult.save`."""
    folder.mkdir(parents=True, exist_ok=True)
    record, table, chart = (folder / f"tune.{ending}" for ending in ("json", "csv", "png"))
    write_json(record, result_record(result))
    write_atomically(table, _csv(result).encode())
    write_atomically(chart, draw_points(result))
    return [record, table, chart, result.plan.save(folder / "plan.yaml")]
