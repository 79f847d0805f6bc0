"""The chart of the benchmark of binary networks: speed-ups of networks and sweeps of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench.report import device_of, write_value
from bitgnn.measure.report import format_ratio

Record = Mapping[str, Any]
OURS, PEERS, GOAL = "#f58518", ("#4c78a8", "#9ecae9", "#79706e"), "#e45756"


def bnn_chart(
    path: str | Path, record: Record, title: str = "Binary convolutions and networks"
) -> None:
    """Draws ratios of all cases that are no sweep, and times of each sweep over the channels."""
    groups: dict[str, list[Record]] = {}
    for result in record["results"]:
        groups.setdefault(result["group"], []).append(result)
    sweeps = {g: r for g, r in groups.items() if g.startswith("BConv") and len(r) > 1}
    bars = [r for g, found in groups.items() if g not in sweeps for r in found]
    bars = [result for result in bars if result["ratio"] is not None]
    panels = len(sweeps) + bool(bars)
    columns = min(3, panels)
    rows = -(-panels // columns)
    height = max(4.2, 1.0 + 0.24 * len(bars) / rows) * rows
    figure = Figure(figsize=(5.6 * columns, height), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    if bars:
        _ratios(axes[0], bars)
    for place, (group, results) in zip(axes[bool(bars) :], sweeps.items(), strict=False):
        _sweep(place, group, results)
    for unused in axes[panels:]:
        unused.set_axis_off()
    device = device_of(record["environment"], on_cuda=record["benchmark"].endswith("cuda"))
    figure.suptitle(f"{title}, medians, {device}", fontsize=11)
    figure.savefig(path, dpi=110)


def _ratios(axes: Any, results: Sequence[Record]) -> None:
    """A bar for each case, and a line where its goal stands."""
    for position, result in enumerate(results):
        ratio = result["ratio"]
        axes.barh(position, ratio - 1.0, left=1.0, color=OURS, height=0.7)
        write_value(axes, format_ratio(ratio), max(ratio, 1.0), position, 7)
        for goal in result["goals"]:
            if goal["kind"] == "ratio":
                axes.vlines(goal["value"], position - 0.45, position + 0.45, color=GOAL)
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    for labelled in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        labelled(lambda value, place: f"{value:g}×" if value in (0.5, 1, 2, 3, 5, 10, 20) else "")
    labels = [f"{_short(result['group'])}{result['name']}" for result in results]
    axes.set_yticks(range(len(results)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.2, y=0.01)
    goals = any(goal["kind"] == "ratio" for result in results for goal in result["goals"])
    title = f"times faster than the best of torch{' (red: goal)' if goals else ''}"
    axes.set_title(title, fontsize=9, loc="right")  # the labels' width is free for it


def _short(group: str) -> str:
    return "" if group.startswith("network") else f"{group.partition(',')[0]}: "


def _sweep(axes: Any, group: str, results: Sequence[Record]) -> None:
    """Time over the channels of each contender."""
    outputs_vary = len({result["outputs"] for result in results}) > 1
    x = [result["outputs" if outputs_vary else "channels"] for result in results]
    colours = iter(PEERS)
    for name in dict.fromkeys(c["name"] for result in results for c in result["contenders"]):
        points = [
            (place, c["timing"]["median"] * 1e6, c["ours"])
            for place, result in zip(x, results, strict=True)
            for c in result["contenders"]
            if c["name"] == name and c["timing"] is not None
        ]
        if not points:
            continue
        ours = points[0][2]
        colour = OURS if ours else next(colours, "black")
        axes.plot(
            [p[0] for p in points],
            [p[1] for p in points],
            marker="o",
            markersize=3,
            color=colour,
            label=f"bitgnn, {name}" if ours else name,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda value, place: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
    axes.set_xlabel("outputs" if outputs_vary and results[0]["channels"] == results[-1]["channels"]
                    else "channels", fontsize=8)  # fmt: skip
    axes.set_ylabel("µs", fontsize=8)
    axes.grid(linewidth=0.3)
    axes.tick_params(labelsize=7)
    axes.set_title(group, fontsize=9)
    axes.legend(fontsize=7)
