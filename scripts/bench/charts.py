"""Charts of benchmark records: bars of ratios, times and parts of ceilings, sweeps of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

from bench.report import device_of
from bench.tables.models import best_of, peer_memory, peer_seconds
from bitgnn.measure.report import format_bytes, format_ratio, format_seconds

Record = dict[str, Any]
Values = Sequence[float | None]

OURS, GOAL, COLOURS = "#f58518", "#e45756", ("#4c78a8", "#9ecae9", "#79706e", "#54a24b", "#b279a2")
SWEEP = "BConv"
"""Groups that begin so are drawn over their channels."""
BAR_INCHES = 0.28
MODEL_COLOURS = {
    "PyG fp32": "#bab0ac",
    "PyG's best": "#79706e",
    "Bi-GCN emulated": "#b279a2",
    "full, from fp32": "#9ecae9",
    "full, packed": "#4c78a8",
    "bin, from fp32": "#ffbf79",
    "bin, packed": "#f58518",
}


def draw_bars(
    axes: Axes,
    labels: Sequence[str],
    series: Mapping[str, tuple[str, Values]],
    text: Callable[[float], str],
    *,
    start: float = 0.0,
    beside: bool = True,
) -> None:
    """Horizontal bars from the top, each with its value behind its end.

    Args:
        axes: where.
        labels: of the rows.
        series: colour, and a value for each row or None, by name.
        text: a value as text.
        start: where bars begin.
        beside: series stand beside each other in a row, which else has one bar.
    """
    step = 0.86 / len(series) if beside else 0.8
    for number, (colour, values) in enumerate(series.values()):
        offset = (number - (len(series) - 1) / 2) * step if beside else 0.0
        for row, value in enumerate(values):
            if value is None:
                continue
            axes.barh(row + offset, value - start, left=start, height=0.9 * step, color=colour)
            place = max(value, start), row + offset
            axes.annotate(text(value), place, (3, 0), textcoords="offset points", va="center",
                          fontsize=6 if beside and len(series) > 1 else 7)  # fmt: skip
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    if not axes.yaxis_inverted():
        axes.invert_yaxis()
    axes.margins(x=0.18, y=0.01)


def _save(figure: Figure, path: str | Path, title: str, record: Record) -> None:
    device = device_of(record["environment"], on_cuda=record["benchmark"].endswith("cuda"))
    figure.suptitle(f"{title}, medians, {device}", fontsize=11)
    figure.savefig(path, dpi=110)


def _titled(result: Record) -> str:
    return f"{result['group'].partition(',')[0]}: {result['name']}"


def _logarithmic(axes: Axes, text: Callable[[float], str], base: int = 10) -> None:
    axes.set_xscale("log", base=base)
    axes.xaxis.set_major_formatter(lambda value, place: text(value))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", linewidth=0.3)


def ratios_chart(path: str | Path, record: Record, title: str = "Operators") -> None:
    """Draws ratios of all cases that are no sweep, and times of each sweep over the channels."""
    groups: dict[str, list[Record]] = {}
    for result in record["results"]:
        groups.setdefault(result["group"], []).append(result)
    sweeps = {g: r for g, r in groups.items() if g.startswith(SWEEP) and len(r) > 1}
    bars = [r for g, found in groups.items() if g not in sweeps for r in found if r["ratio"]]
    panels = len(sweeps) + bool(bars)
    columns = min(3, panels)
    rows = -(-panels // columns)
    height = max(4.2, 1.2 + BAR_INCHES * len(bars) / rows) * rows
    figure = Figure(figsize=((9.0, 6.0, 5.6)[columns - 1] * columns, height), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    if bars:
        values = [result["ratio"] for result in bars]
        draw_bars(axes[0], list(map(_titled, bars)), {"": (OURS, values)}, format_ratio, start=1.0)
        _logarithmic(axes[0], lambda value: f"{value:g}×")
        axes[0].axvline(1.0, color="grey", linewidth=0.8)
        for row, goal in _ratio_goals(bars):
            axes[0].vlines(goal, row - 0.45, row + 0.45, color=GOAL)
        axes[0].set_title("times faster than the best of the others (red: goal)", fontsize=9)
    for place, (group, results) in zip(axes[bool(bars) :], sweeps.items(), strict=False):
        _sweep(place, group, results)
    for unused in axes[panels:]:
        unused.set_axis_off()
    _save(figure, path, title, record)


def _ratio_goals(results: Iterable[Record]) -> Iterable[tuple[int, float]]:
    for row, result in enumerate(results):
        goals = [g["value"] for g in result.get("goals", ()) if g["kind"] == "ratio"]
        yield from ((row, value) for value in [*goals, result.get("target")] if value)


def _sweep(axes: Axes, group: str, results: Sequence[Record]) -> None:
    """Time over the channels of each contender."""
    counted = "outputs" if len({result["outputs"] for result in results}) > 1 else "channels"
    colours = iter(COLOURS)
    points: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for result in results:
        for c in result["contenders"]:
            if c["timing"] is not None:
                point = result[counted], 1e6 * c["timing"]["median"]
                points.setdefault((c["name"], c["ours"]), []).append(point)
    for (name, ours), line in points.items():
        colour, label = (OURS, f"bitgnn, {name}") if ours else (next(colours, "black"), name)
        axes.plot(*zip(*line, strict=True), marker="o", markersize=3, color=colour, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, place: f"{value:g}")
    axes.set_xlabel(counted, fontsize=8)
    axes.set_ylabel("µs", fontsize=8)
    axes.grid(linewidth=0.3)
    axes.tick_params(labelsize=7)
    axes.set_title(group, fontsize=9)
    axes.legend(fontsize=7)


def ceilings_chart(path: str | Path, record: Record) -> None:
    """Bars of how much of its ceiling each case reaches, coloured by what binds it."""
    results = [r for r in record["results"] if r["ceiling_fraction"] is not None]
    series = {
        binds: (colour, [r["ceiling_fraction"] if r["binds"] == binds else None for r in results])
        for binds, colour in zip(sorted({r["binds"] for r in results}), COLOURS, strict=False)
    }
    size = (9, 1.4 + BAR_INCHES * len(results))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    draw_bars(axes, list(map(_titled, results)), series, lambda part: f"{part:.0%}", beside=False)
    axes.axvline(1.0, color="grey", linewidth=0.8)
    handles = [Patch(color=colour, label=name) for name, (colour, _) in series.items()]
    axes.legend(handles=handles, title="bound by", fontsize=8)
    _save(figure, path, "Part of the ceiling of the same run that is reached", record)


def _of_forms(result: Record, value: Callable[[Any], float]) -> dict[str, float | None]:
    """A value of our fastest entry by form and features."""
    found = {}
    for form in ("full", "bin"):
        for features, label in (("floats", "from fp32"), ("packed", "packed")):
            entry = best_of(result, form, features)
            found[f"{form}, {label}"] = None if entry is None else value(entry)
    return found


def _seconds(result: Record) -> dict[str, float | None]:
    return {
        "PyG fp32": peer_seconds(result, "PyG", "fp32"),
        "PyG's best": peer_seconds(result, "PyG"),
        "Bi-GCN emulated": peer_seconds(result, "Bi-GCN emulated"),
        **_of_forms(result, lambda entry: float(entry["seconds"])),
    }


def _bytes(result: Record) -> dict[str, float | None]:
    ours = _of_forms(result, lambda entry: float(entry["memory"]["total"]))
    return {"PyG fp32": peer_memory(result), **ours}


def _speed_ups(result: Record) -> dict[str, float | None]:
    seconds = _seconds(result)
    best = seconds.pop("PyG's best")
    return {name: best / value if best and value else None for name, value in seconds.items()}


def models_chart(path: str | Path, record: Record) -> None:
    """Draws latency, memory and speed-up over PyG's best of every case, logarithmic axes."""
    results = record["results"]
    labels = [f"{result['model']}\n{result['graph_name']}" for result in results]
    height = 1.6 + len(results) * (len(MODEL_COLOURS) + 1.5) * 0.15
    figure = Figure(figsize=(15, height), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    drawn: tuple[tuple[str, Callable[[Record], dict[str, float | None]], Any, int], ...] = (
        ("latency (one forward)", _seconds, format_seconds, 10),
        ("memory (stored and allocated)", _bytes, format_bytes, 32),  # ticks at KiB, MiB, GiB
        ("times faster than PyG's best", _speed_ups, format_ratio, 10),
    )
    for axes, (title, values, text, base) in zip(panels, drawn, strict=True):
        found = [values(result) for result in results]
        series = {n: (c, [row.get(n) for row in found]) for n, c in MODEL_COLOURS.items()}
        draw_bars(axes, labels, series, text)
        axes.set_title(title, fontsize=10)
        _logarithmic(axes, text, base)
    panels[2].axvline(1.0, color="black", linewidth=0.8)
    handles = [Patch(color=colour, label=name) for name, colour in MODEL_COLOURS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
    _save(figure, path, "Whole models", record)
