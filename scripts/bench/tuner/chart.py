"""Chart of the tuner's benchmark: estimated over measured latency of every recorded plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.tables.tuner import GOALS
from bitgnn.convert import Plan

COLUMNS = 4
PLAN, BEST = "#3d7ea6", "#d1603d"


def estimates_chart(
    path: Path, recorded: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]
) -> None:
    """Save one panel a graph as a PNG; the tuner's choice is marked, and the error aimed at."""
    rows = -(-len(results) // COLUMNS)
    figure = Figure(figsize=(12.5, 0.6 + 2.9 * rows), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
    for axes, content, result in zip(panels, recorded, results, strict=False):
        _panel(axes, content["plans"], result)
    for axes in panels[len(results) :]:
        axes.set_axis_off()
    figure.supxlabel("measured latency, s", fontsize=10)
    figure.supylabel("estimated latency, s", fontsize=10)
    figure.suptitle(
        f"Every recorded plan; dotted: {GOALS['error']:.0%} off; orange: the tuner's choice",
        fontsize=11,
    )
    figure.savefig(path, dpi=110)


def _panel(axes: Axes, plans: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> None:
    measured = [entry["timing"]["median"] for entry in plans]
    estimated = [entry["estimate"] for entry in plans]
    ends = [min(measured + estimated), max(measured + estimated)]
    axes.plot(ends, ends, color="#8a8f98", linewidth=0.8)
    for factor in (1 - GOALS["error"], 1 + GOALS["error"]):
        axes.plot(ends, [factor * end for end in ends], color="#8a8f98", linewidth=0.8, ls=":")
    axes.scatter(measured, estimated, s=7, color=PLAN, alpha=0.6)
    best = Plan.from_dict(result["plan"])
    chosen = next(entry for entry in plans if Plan.from_dict(entry["plan"]) == best)
    place = [chosen["timing"]["median"]], [chosen["estimate"]]
    axes.scatter(*place, s=45, color=BEST, edgecolor="black", zorder=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_title(
        f"{result['name']}\nratio {result['ratio']:.3f}, error {result['error']:.0%}", fontsize=9
    )
    axes.tick_params(labelsize=7, which="both")
