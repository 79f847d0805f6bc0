"""The chart of the whole-model benchmark: latency, memory and speed-up as bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
) -> None:
    """Horizontal bars from the top, each with its value behind its end.

    Args:
        axes: where.
        labels: of the rows.
        series: colour, and a value for each row or None, by name.
        text: a value as text.
    """
    step = 0.86 / len(series)
    for number, (colour, values) in enumerate(series.values()):
        offset = (number - (len(series) - 1) / 2) * step
        for row, value in enumerate(values):
            if value is None:
                continue
            axes.barh(row + offset, value, height=0.9 * step, color=colour)
            axes.annotate(
                text(value), (value, row + offset), (3, 0), textcoords="offset points",
                va="center", fontsize=6,
            )  # fmt: skip
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    if not axes.yaxis_inverted():
        axes.invert_yaxis()
    axes.margins(x=0.18, y=0.01)


def _save(figure: Figure, path: str | Path, title: str, record: Record) -> None:
    device = device_of(record["environment"], on_cuda=record["benchmark"].endswith("cuda"))
    figure.suptitle(f"{title}, medians, {device}", fontsize=11)
    figure.savefig(path, dpi=110)


def _logarithmic(axes: Axes, text: Callable[[float], str], base: int = 10) -> None:
    axes.set_xscale("log", base=base)
    axes.xaxis.set_major_formatter(lambda value, place: text(value))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", linewidth=0.3)


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
