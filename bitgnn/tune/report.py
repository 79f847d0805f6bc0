"""Writes the result of tuning: table, CSV, JSON, plan, and a chart of accuracy over latency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from rich.box import SIMPLE_HEAD
from rich.table import Table

from bitgnn._files import write_atomically
from bitgnn.convert import Plan
from bitgnn.measure.report import (
    csv_text,
    environment,
    format_bytes,
    format_seconds,
    open_frame,
    png,
    write_json,
)
from bitgnn.tune.objective import Measures, pareto_front
from bitgnn.tune.result import Point, TuneResult

PLAN, BEST, LIMIT, BASELINE = "#3d7ea6", "#d1603d", "#8a8f98", "#555555"
SMALLEST, LARGEST = 30.0, 420.0
"""Areas of marks in points squared."""
COLUMNS = (
    "name", "widen", "letters", "order", "features", "distilled_epochs", "validation", "test",
    "latency_seconds", "estimate_seconds", "memory_bytes", "distilled", "meets_limits", "on_front",
    "recommended",
)  # fmt: skip
MARK = "x"
RECOMMENDED, NEAREST = "*", "nearest"


def result_table(result: TuneResult, most: int) -> Table:
    """The baseline, then at most ``most`` plans, best first; the front is marked."""
    is_kept = result.missed is None
    title = f"{result.workload['model']}: best {result.objective}"
    table = Table(box=SIMPLE_HEAD, title=title, caption=_caption(result))
    for name in ("", "letters", "order, features"):
        table.add_column(name)
    for name in ("width", "validation", "latency", "memory", "limits"):
        table.add_column(name, justify="right")
    front = {id(point) for point in result.front}
    others = [point for point in result.plans if point is not result.recommended]
    others.sort(
        key=lambda p: (id(p) not in front, not result.meets(p), p.measures.rank(result.objective))
    )
    for point in [*result.baselines, result.recommended, *others[:most]]:
        mark = "front" if id(point) in front else ""
        if point is result.recommended:
            mark = RECOMMENDED if is_kept else NEAREST
        what = ["", point.name]
        if point.plan is not None:
            letters, *ways = _cells(point.plan)
            what = [letters, ", ".join(filter(None, ways))]
        table.add_row(
            mark,
            *what,
            "" if point.widen is None else f"×{point.widen:g}",
            f"{100 * point.score.validation:.2f}%",
            format_seconds(point.timing.median),
            format_bytes(point.memory),
            result.verdict(point),
            style="bold" if point is result.recommended else None,
        )
    return table


def _cells(plan: Plan) -> list[str]:
    """Letters, order and form of the features of a plan."""
    order = " ".join(f"{name} {value}" for name, value in plan.order.items())
    return [" ".join(plan.letters.values()), order, plan.features]


def _caption(result: TuneResult) -> str:
    """Explain the marks, and the score from which losses of accuracy count."""
    chosen = f"{RECOMMENDED}: recommended"
    if result.missed is not None:
        chosen = f"{NEAREST}: closest to the limits, which no plan is known to keep"
    limits = ", ".join(map(str, result.constraints)) or "none"
    text = f"{chosen}; front: nothing else is at least as good in everything; limits: {limits}"
    if any(limit.what == "accuracy drop" for limit in result.constraints):
        text += f", counted from the float model ({100 * result.reference:.2f}%)"
    return text


def result_record(result: TuneResult) -> dict[str, Any]:
    """Everything in plain values: machine, sizes, limits, and every repeat of every point."""
    front = {id(point) for point in result.front}
    kept = ("reference", "missed", "space", "measured", "seconds", "seed", "complete", "noise")
    return {
        "benchmark": "bitgnn tune result",
        "environment": environment(),
        "workload": dict(result.workload),
        "objective": result.objective,
        "constraints": [str(limit) for limit in result.constraints],
        **{name: getattr(result, name) for name in kept},
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
                "widen": point.widen,
                "distilled_epochs": None if point.student is None else point.student.epochs,
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
    """Every point, then every plan of the search, scored with another plan's weights."""
    front = {id(point) for point in result.front}
    rows: list[Sequence[Any]] = [COLUMNS]
    for point in result.points:
        score = point.score
        is_best = point is result.recommended and result.missed is None
        marks = (True, result.meets(point), id(point) in front, is_best)
        rows.append([
            point.name, point.widen, *(["", "", ""] if point.plan is None else _cells(point.plan)),
            None if point.student is None else point.student.epochs,
            score.validation, _finite(score.test), point.timing.median, "",
            int(point.memory), *(MARK if mark else "" for mark in marks),
        ])  # fmt: skip
    rows += [
        [
            "not distilled", trial.widen, *_cells(trial.plan), "", trial.score.validation,
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


def draw_points(result: TuneResult) -> bytes:
    """The chart as a PNG: memory as size, the Pareto front marked."""
    figure = Figure(figsize=(9.5, 5.6), layout="constrained")
    axes = figure.add_subplot()
    sizes = _sizes([point.memory for point in result.points])
    for point, size in zip(result.points, sizes, strict=True):
        _draw(axes, point, size, point is result.recommended)
    _draw_front(axes, result)
    for limit in result.constraints:
        if limit.what == "accuracy drop":
            height = 100 * (result.reference - limit.limit)
            axes.axhline(height, color=LIMIT, linestyle=":", linewidth=1)
            axes.annotate(
                str(limit), (1, height), (-4, -11), xycoords=("axes fraction", "data"),
                textcoords="offset points", ha="right", fontsize=8, color="#555555",
            )  # fmt: skip
        elif limit.what == "latency":
            axes.axvline(limit.limit, color=LIMIT, linestyle=":", linewidth=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.1, y=0.12)
    axes.set_xlabel("latency of a forward (median, logarithmic)")
    axes.set_ylabel(f"validation {result.workload['metric'].replace('_', ' ')}, %")
    axes.grid(alpha=0.25)
    open_frame(axes)
    title = "{model} on {nodes} nodes, {edges} edges, {device}".format(**result.workload)
    figure.suptitle(title, fontsize=11, fontweight="bold")
    _legend(axes, result)
    return png(figure)


def _sizes(memory: Sequence[float]) -> list[float]:
    """Areas by the logarithm of bytes."""
    low, high = math.log(min(memory)), math.log(max(memory))
    span = max(high - low, 1e-9)
    return [SMALLEST + (LARGEST - SMALLEST) * (math.log(m) - low) / span for m in memory]


def _draw(axes: Axes, point: Point, size: float, is_best: bool) -> None:
    x, y = [point.timing.median], [100 * point.score.validation]
    if point.plan is None:
        axes.scatter(x, y, s=size, marker="D", color=BASELINE, edgecolor="white", zorder=4)
    elif is_best:
        axes.scatter(x, y, s=size, color=BEST, edgecolor="black", zorder=5)
    else:
        axes.scatter(x, y, s=size, color=PLAN, alpha=0.55, edgecolor="white", zorder=3)


def _draw_front(axes: Axes, result: TuneResult) -> None:
    """The front of accuracy and latency as steps, and a ring around points of the whole front."""
    flat = [Measures(p.score.validation, p.timing.median, 0.0) for p in result.points]
    ends = [flat[place] for place in pareto_front(flat)]
    if len(ends) > 1:
        axes.step(
            [m.latency for m in ends], [100 * m.accuracy for m in ends], where="post",
            color=BEST, linewidth=1.2, zorder=2,
        )  # fmt: skip
    axes.scatter(
        [p.timing.median for p in result.front],
        [100 * p.score.validation for p in result.front],
        s=14, color="none", edgecolor="black", linewidth=0.9, zorder=6,
    )  # fmt: skip


def _legend(axes: Axes, result: TuneResult) -> None:
    chosen = "recommended: " if result.missed is None else "nearest to the limits: "
    marks = [
        _mark("o", BEST, chosen + format_seconds(result.recommended.timing.median)),
        _mark("o", PLAN, "other distilled plans"),
    ]
    marks += [_mark("D", BASELINE, point.name) for point in result.baselines]
    marks.append(
        Line2D([], [], marker="o", markerfacecolor="none", markeredgecolor="black",
               markersize=5, color=BEST, label="Pareto front")
    )  # fmt: skip
    memory = [point.memory for point in result.points]
    sizes = f"area: memory, {format_bytes(min(memory))} to {format_bytes(max(memory))}"
    axes.legend(
        handles=marks, title=sizes, fontsize=8, title_fontsize=8, loc="upper left",
        bbox_to_anchor=(1.0, 1.0), frameon=False,
    )  # fmt: skip


def _mark(marker: str, color: str, label: str) -> Line2D:
    return Line2D([], [], marker=marker, color=color, linestyle="none", markersize=8, label=label)


def _tick(value: float) -> str:
    """Label of a tick, such as ``200 µs``."""
    number, unit = format_seconds(value).split()
    return f"{float(number):g} {unit}"
