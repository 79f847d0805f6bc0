"""The chart of the whole-model benchmark: latency, memory and speed-up side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

from bench.report import device_of, write_value
from bench.tables.models import best_of, peer_memory, peer_seconds
from bitgnn.measure.report import format_bytes, format_ratio, format_seconds

Record = dict[str, Any]
BAR_INCHES = 0.15
COLOURS = {
    "PyG fp32": "#bab0ac",
    "PyG's best": "#79706e",
    "Bi-GCN emulated": "#b279a2",
    "full, from fp32": "#9ecae9",
    "full, packed": "#4c78a8",
    "bin, from fp32": "#ffbf79",
    "bin, packed": "#f58518",
}


def _seconds(result: Record) -> dict[str, float | None]:
    """Latency of each bar of a case."""
    found = {
        "PyG fp32": peer_seconds(result, "PyG", "fp32"),
        "PyG's best": peer_seconds(result, "PyG"),
        "Bi-GCN emulated": peer_seconds(result, "Bi-GCN emulated"),
    }
    for form in ("full", "bin"):
        for features, label in (("floats", "from fp32"), ("packed", "packed")):
            entry = best_of(result, form, features)
            found[f"{form}, {label}"] = None if entry is None else entry["seconds"]
    return found


def _bytes(result: Record) -> dict[str, float | None]:
    found: dict[str, float | None] = {"PyG fp32": peer_memory(result)}
    for form in ("full", "bin"):
        for features, label in (("floats", "from fp32"), ("packed", "packed")):
            entry = best_of(result, form, features)
            found[f"{form}, {label}"] = None if entry is None else entry["memory"]["total"]
    return found


def _speed_ups(result: Record) -> dict[str, float | None]:
    seconds = _seconds(result)
    best = seconds["PyG's best"]
    return {
        name: None if value is None or best is None else best / value
        for name, value in seconds.items()
        if name != "PyG's best"
    }


def models_chart(path: str | Path, record: Record) -> None:
    """Draws latency, memory and speed-up over PyG's best of every case, logarithmic axes."""
    results = record["results"]
    labels = [f"{result['model']}\n{result['graph_name']}" for result in results]
    height = 1.6 + len(results) * (len(COLOURS) + 1.5) * BAR_INCHES
    figure = Figure(figsize=(15, height), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    drawn: tuple[tuple[str, Callable[[Record], dict[str, float | None]], Any, int], ...] = (
        ("latency (one forward)", _seconds, format_seconds, 10),
        ("memory (stored and allocated)", _bytes, format_bytes, 32),  # ticks at KiB, MiB, GiB
        ("times faster than PyG's best", _speed_ups, format_ratio, 10),
    )
    for axes, (title, values, text, base) in zip(panels, drawn, strict=True):
        _bars(axes, [values(result) for result in results], text)
        axes.set_title(title, fontsize=10)
        axes.set_xscale("log", base=base)
        axes.xaxis.set_major_formatter(lambda value, place, text=text: text(value))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(x=0.16, y=0.01)
        axes.grid(axis="x", linewidth=0.3)
    panels[2].axvline(1.0, color="black", linewidth=0.8)
    panels[0].set_yticks(range(len(labels)), labels, fontsize=8)
    panels[0].invert_yaxis()
    device = device_of(record["environment"], on_cuda=record["benchmark"].endswith("cuda"))
    figure.suptitle(f"Whole models, medians, {device}", fontsize=11)
    handles = [Patch(color=colour, label=name) for name, colour in COLOURS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(COLOURS), fontsize=8)
    figure.savefig(path, dpi=110)


def _bars(
    axes: Any, cases: Sequence[dict[str, float | None]], text: Callable[[float], str]
) -> None:
    """A bar for each entry of each case, labelled with its value."""
    names = list(COLOURS)
    step = 0.86 / len(names)
    for place, values in enumerate(cases):
        for name, value in values.items():
            if value is None:
                continue
            position = place + (names.index(name) - (len(names) - 1) / 2) * step
            axes.barh(position, value, color=COLOURS[name], height=step * 0.92)
            write_value(axes, text(value), value, position, 6)
