"""Charts of records: ratios, gaps, and whole models."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from bench.report import Record, device_of
from bench.tables.models import best_of, peer_memory, peer_seconds
from bench.tables.networks import UNLISTED
from bitgnn.measure.report import format_bytes, format_ratio, format_seconds

Found = dict[str, float | None]

FASTER, SLOWER = "#4c78a8", "#e45756"
MODEL_COLOURS = {
    "PyG fp32": "#bab0ac",
    "PyG's best": "#79706e",
    "Bi-GCN emulated": "#b279a2",
    "full, from fp32": "#9ecae9",
    "full, packed": "#4c78a8",
    "bin, from fp32": "#ffbf79",
    "bin, packed": "#f58518",
}
MODEL_PANELS: tuple[tuple[str, Callable[[float], str], int], ...] = (
    ("latency (one forward)", format_seconds, 10),
    ("memory (stored and allocated)", format_bytes, 32),  # ticks at KiB, MiB, GiB
    ("times faster than PyG's best", format_ratio, 10),
)
SQUARE = {"ls": "", "marker": "s", "markersize": 9}
MOST_CASES = 15
"""Groups of more cases are drawn in summary."""
UNDRAWN, OWN_BASELINE = (UNLISTED, "BSpMM layouts"), "pack alone"
"""Beginnings of groups, and a baseline of ours, that are left to the tables."""


def _titled(figure: Figure, title: str, record: Record) -> Figure:
    on_cuda = record["benchmark"].endswith("cuda") if "settings" in record else None
    figure.suptitle(f"{title}, {device_of(record['environment'], on_cuda=on_cuda)}", fontsize=11)
    return figure


def _value(axes: Axes, text: str, x: float, y: float, size: int) -> None:
    axes.annotate(text, (x, y), (4, 0), textcoords="offset points", va="center", fontsize=size,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4})  # fmt: skip


def _colours(*forms: str) -> dict[str, str]:
    """Colours of matplotlib's cycle; "fp32", "full" and "bin" have the same on every chart."""
    first = ("fp32", "full", "bin") if "bin" in forms else ("fp32",)
    order = dict.fromkeys((*first, *forms))
    return {form: f"C{number}" for number, form in enumerate(order) if form in forms}


def _legend(figure: Figure, colours: Mapping[str, str], **style: Any) -> None:
    handles = [Line2D([], [], color=colour, label=name) for name, colour in colours.items()]
    for handle in handles:
        handle.set(**style)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9)


def _logarithmic(axes: Axes, text: Callable[[float], str], locator: LogLocator) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(lambda value, place: text(value))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", linewidth=0.3)


def ratios_chart(title: str, record: Record) -> Figure:
    """Bars of how many times faster each case is than its best baseline, under their groups.

    A bar of several cases ends at their geometric mean; each of them is a dot.
    """
    rows: list[tuple[str, list[float]]] = []
    for group, cases in _grouped(record["results"]).items():
        rows += [(group, []), *cases.items()]
    figure = Figure(figsize=(9, 1.5 + 0.2 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for row, ratios in enumerate(ratios for _, ratios in rows):
        if ratios:
            mean = statistics.geometric_mean(ratios)
            axes.barh(row, mean - 1, 0.75, left=1, color=FASTER if mean >= 1 else SLOWER)
            _value(axes, format_ratio(mean), max(1, *ratios), row, 8)
        if len(ratios) > 1:
            axes.plot(ratios, [row] * len(ratios), "k.", markersize=5, alpha=0.6)
    names = [f"{n} ({len(ratios)} cases)" if len(ratios) > 1 else n for n, ratios in rows]
    ticks = axes.set_yticks(range(len(rows)), names, fontsize=8)
    for tick, (_, ratios) in zip(ticks, rows, strict=True):
        tick.label1.set_fontweight("normal" if ratios else "bold")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    _logarithmic(axes, "{:g}×".format, LogLocator(subs=(1, 2, 5)))
    axes.margins(x=0.12)
    axes.axvline(1, color="black", linewidth=0.8)
    note = " (bars of several cases: geometric mean)" if any(len(r) > 1 for _, r in rows) else ""
    axes.set_xlabel(f"times faster than the best baseline{note}", fontsize=9, loc="right")
    return _titled(figure, title, record)


def _grouped(results: Iterable[Record]) -> dict[str, dict[str, list[float]]]:
    """Ratios by group and name, in long groups by the word that a name begins with."""
    ranked = [r for r in results if r["ratio"] and r.get("best_baseline") != OWN_BASELINE]
    sizes = Counter(r["group"] for r in ranked if not r["group"].startswith(UNDRAWN))
    groups: dict[str, dict[str, list[float]]] = {group: {} for group in sizes}
    for result in ranked:
        group, name = result["group"], result["name"]
        if group not in groups:
            continue
        if sizes[group] > MOST_CASES:
            first = name.replace(",", " ").split()[0]
            name = first if first.isalpha() else "all"
        groups[group].setdefault(name, []).append(result["ratio"])
    return groups


def gaps_chart(record: Record) -> Figure:
    """Points of how far each form is behind full precision on each graph, a panel a model."""
    models: dict[str, list[Record]] = {}
    for row in record["summary"]:
        name = row["model"] if "model" in row else f"{row['layer']}, {row['layers']} layers"
        models.setdefault(name, []).append(row)
    graphs = list(dict.fromkeys(graph for row in record["summary"] for graph in row["gaps"]))
    colours = _colours(*(row["form"] for row in record["summary"]))
    figure = Figure(figsize=(10, 1.6 + 0.27 * len(graphs)), layout="constrained")
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for axes, (model, rows) in zip(panels, models.items(), strict=True):
        for number, row in enumerate(rows):
            offset = 0.2 * (number - (len(rows) - 1) / 2)
            places = [graphs.index(graph) + offset for graph in row["gaps"]]
            axes.plot(row["gaps"].values(), places, "o", color=colours[row["form"]], ms=5)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_title(model, fontsize=10)
        axes.set_xlabel("points behind fp32")
        axes.grid(linewidth=0.3)
    panels[0].set_yticks(range(len(graphs)), graphs, fontsize=9)
    panels[0].set_ylim(len(graphs) - 0.5, -0.5)
    _legend(figure, colours, ls="", marker="o")
    return _titled(figure, "Mean gap of test scores (below 0: better than fp32)", record)


def models_chart(record: Record) -> Figure:
    """Bars of latency, memory and speed-up over PyG's best of every case, logarithmic axes."""
    results = record["results"]
    figure = Figure(figsize=(12.5, 1.6 + 1.2 * len(results)), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    step = 0.86 / len(MODEL_COLOURS)
    for axes, (title, text, base), column in zip(
        panels, MODEL_PANELS, zip(*map(_of_model, results), strict=True), strict=True
    ):
        for row, found in enumerate(column):
            for number, (name, colour) in enumerate(MODEL_COLOURS.items()):
                if value := found.get(name):
                    y = row + (number - (len(MODEL_COLOURS) - 1) / 2) * step
                    axes.barh(y, value, 0.9 * step, color=colour)
                    _value(axes, text(value), value, y, 7)
        axes.set_title(title, fontsize=10)
        _logarithmic(axes, text, LogLocator(base=base))
        axes.margins(x=0.23, y=0.01)
    names = [f"{result['model']}\n{result['graph_name']}" for result in results]
    panels[0].set_yticks(range(len(results)), names, fontsize=9)
    panels[0].invert_yaxis()
    panels[2].axvline(1, color="black", linewidth=0.8)
    _legend(figure, MODEL_COLOURS, **SQUARE)
    return _titled(figure, "Whole models, medians", record)


def _of_model(result: Record) -> tuple[Found, Found, Found]:
    """Seconds, bytes, and times faster than PyG's best, by the names of ``MODEL_COLOURS``."""
    fastest = {
        f"{form}, {label}": best_of(result, form, features)
        for form in ("full", "bin")
        for features, label in (("floats", "from fp32"), ("packed", "packed"))
    }
    ours = {name: entry for name, entry in fastest.items() if entry is not None}
    best = peer_seconds(result, "PyG")
    seconds = {
        "PyG fp32": peer_seconds(result, "PyG", "fp32"),
        "Bi-GCN emulated": peer_seconds(result, "Bi-GCN emulated"),
        **{name: entry["seconds"] for name, entry in ours.items()},
    }
    memory = {name: entry["memory"]["total"] for name, entry in ours.items()}
    ratios = {name: best / value for name, value in seconds.items() if best and value}
    return seconds | {"PyG's best": best}, memory | {"PyG fp32": peer_memory(result)}, ratios
