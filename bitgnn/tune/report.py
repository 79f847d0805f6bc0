"""The report of a tuning: text with a table, a JSON record, and a chart of score over latency."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitgnn._files import write_atomically
from bitgnn.inference import save
from bitgnn.measure.report import (
    environment,
    format_bytes,
    format_ratio,
    format_seconds,
    open_frame,
    png,
    write_json,
)

if TYPE_CHECKING:
    from bitgnn.tune.result import Point, TuneResult

FORMAT = 2
"""Of the record; 1 had the plans of a search."""
CANDIDATE, BEST, FLOAT, LIMIT = "#3d7ea6", "#d1603d", "#555555", "#8a8f98"
SMALLEST, LARGEST = 30.0, 420.0
"""Areas of marks in points squared."""


def report_text(result: TuneResult) -> str:
    """The verdict, a table of all points, best first, and what was left out."""
    return "\n".join([*_verdict(result), "", *_table(result), *_rest(result)])


def _verdict(result: TuneResult) -> Iterator[str]:
    best, beside = result.best, result.baseline
    if result.missed is None:
        yield f"Take {best.name}: the best {result.goal.objective} of {len(result.points)}."
    else:
        yield f"None is recommended: {result.missed}."
    points = 100 * (best.score - beside.score)
    yield (
        f"Beside {beside.name}: {format_ratio(beside.latency / best.latency)} as "
        f"fast, {format_ratio(beside.memory / best.memory)} less memory, {points:+.2f} points of "
        f"validation {result.metric}."
    )


def _table(result: TuneResult) -> Iterator[str]:
    """Columns are as wide as their contents."""
    rows = [("", "precisions", "validation", "test", "latency", "memory", "limits")]
    front = {id(point) for point in result.front}
    ranked = sorted(result.points, key=lambda p: result.goal.preference(p.measures))
    for point in [*ranked, *result.floats]:
        mark = "front" if id(point) in front else ""
        mark = "best" if point is result.best else mark
        kept = "missed" if result.goal.missed(point.measures) else "kept"
        test = "" if point.test is None else f"{point.test:.4f}"
        rows.append((
            mark, point.name, f"{point.score:.4f}", test, format_seconds(point.latency),
            format_bytes(point.memory), kept,
        ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for mark, name, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[2:], strict=True)]
        yield "  ".join([mark.ljust(widths[0]), name.ljust(widths[1]), *padded]).rstrip()


def _rest(result: TuneResult) -> Iterator[str]:
    candidate = result.points[0].candidate
    assert candidate is not None
    yield f"Precisions are those of {', '.join(candidate.precisions)}; × is the width."
    if result.left_out:
        names = "; ".join(map(str, result.left_out))
        yield f"The budget left no time for {len(result.left_out)} candidates: {names}."
    yield from (f"{candidate} failed: {reason}." for candidate, reason in result.failed.items())
    yield from result.remarks


def result_record(result: TuneResult) -> dict[str, Any]:
    """Everything in plain values: machine, sizes, limits, and every repeat of every point."""
    front = {id(point) for point in result.front}

    def plain(point: Point) -> dict[str, Any]:
        candidate = point.candidate
        return {
            "name": point.name,
            "precisions": None if candidate is None else dict(candidate.precisions),
            "widen": None if candidate is None else candidate.widen,
            "validation": _finite(point.score),
            "test": _finite(point.test),
            "latency": point.timing.to_dict(),
            "memory": point.memory,
            "epochs": point.epochs,
            "ended": point.ended,
            "meets_limits": not result.goal.missed(point.measures),
            "on_front": id(point) in front,
            "best": point is result.best,
        }

    return {
        "benchmark": "bitgnn tune result",
        "format": FORMAT,
        "environment": environment(),
        "workload": dict(result.workload),
        "metric": result.metric,
        "objective": result.goal.objective,
        "constraints": [str(limit) for limit in result.goal.constraints],
        "reference": _finite(result.goal.reference),
        "missed": result.missed,
        "seconds": result.seconds,
        "budget": result.budget,
        "left_out": [str(candidate) for candidate in result.left_out],
        "failed": {str(candidate): reason for candidate, reason in result.failed.items()},
        "remarks": list(result.remarks),
        "points": [plain(point) for point in result.points],
        "floats": [plain(point) for point in result.floats],
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def write_result(result: TuneResult, folder: Path) -> list[Path]:
    """Write all files of a result, see :meth:`TuneResult.save`."""
    folder.mkdir(parents=True, exist_ok=True)
    record, chart = folder / "tune.json", folder / "tune.png"
    write_json(record, result_record(result))
    write_atomically(chart, draw_points(result))
    return [record, chart, save(result.freeze(), folder / "model")]


def draw_points(result: TuneResult) -> bytes:
    """Score over latency as a PNG; the area of a mark is its memory, rings are the front."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure = Figure(figsize=(9.5, 5.6), layout="constrained")
    axes = figure.add_subplot()
    low, high = (math.log(f([p.memory for p in result.points])) for f in (min, max))

    def draw(points: list[Point], color: str, label: str, marker: str = "o", **more: Any) -> None:
        shares = [(math.log(p.memory) - low) / max(high - low, 1e-9) for p in points]
        areas = [SMALLEST + (LARGEST - SMALLEST) * min(max(share, 0), 1) for share in shares]
        x, y = [p.latency for p in points], [p.score for p in points]
        axes.scatter(x, y, s=areas, color=color, marker=marker, label=label, **more)

    others = [point for point in result.points if point is not result.best]
    if others:
        draw(others, CANDIDATE, "other candidates", alpha=0.6, edgecolor="white")
    chosen = "best: " if result.missed is None else "nearest to the limits: "
    draw([result.best], BEST, chosen + result.best.name, edgecolor="black", zorder=3)
    draw(list(result.floats), FLOAT, "float model", "D", edgecolor="white")
    axes.plot(
        [p.latency for p in result.front], [p.score for p in result.front], "o", markersize=4,
        markerfacecolor="none", markeredgecolor="black", label="Pareto front", zorder=4,
    )  # fmt: skip
    for limit in result.goal.constraints:
        if limit.quantity == "accuracy drop":
            axes.axhline(result.goal.reference - limit.limit, color=LIMIT, linestyle=":")
        elif limit.quantity == "latency":
            axes.axvline(limit.limit, color=LIMIT, linestyle=":")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_seconds(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("latency of a forward (median, logarithmic)")
    axes.set_ylabel(f"validation {result.metric}")
    axes.grid(alpha=0.25)
    open_frame(axes)
    axes.set_title("{model} on {nodes} nodes, {edges} edges, {device}".format(**result.workload))
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return png(figure)
