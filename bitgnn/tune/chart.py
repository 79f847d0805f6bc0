"""Chart of a tuner's points: accuracy over latency, memory as size, the Pareto front marked."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bitgnn.measure.report import format_bytes, format_seconds, open_frame, png
from bitgnn.tune.objective import Measures, pareto_front
from bitgnn.tune.result import Point, TuneResult

PLAN, BEST, LIMIT = "#3d7ea6", "#d1603d", "#8a8f98"
BASELINE = "#555555"
SMALLEST, LARGEST = 30.0, 420.0
"""Areas of marks in points squared."""


def draw_points(result: TuneResult) -> bytes:
    """The chart as a PNG.

    Returns:
        Bytes of the image.
    """
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
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.1, y=0.12)
    axes.set_xlabel("latency of a forward (median, logarithmic)")
    axes.set_ylabel(f"validation {result.workload['metric'].replace('_', ' ')}, %")
    axes.grid(alpha=0.25)
    open_frame(axes)
    figure.suptitle(_title(result), fontsize=11, fontweight="bold")
    _legend(axes, result)
    return png(figure)


def _title(result: TuneResult) -> str:
    where = result.workload
    return f"{where['model']} on {where['nodes']} nodes, {where['edges']} edges, {where['device']}"


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
    for point in result.points:
        if point.plan is None:
            marks.append(_mark("D", BASELINE, point.name))
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


def _short(value: float) -> str:
    """A tick such as ``200 µs``."""
    number, unit = format_seconds(value).split()
    return f"{float(number):g} {unit}"
