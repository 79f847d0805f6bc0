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
from bench.tables.models import best_of, peer_seconds
from bench.tables.networks import UNLISTED
from bitgnn.measure.report import format_ratio, format_seconds

Found = dict[str, float | None]

BLUE, ORANGE, GREEN, RED, PURPLE, SKY = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9",
)  # fmt: skip
"""Colours that are told apart without red or green (Okabe and Ito); forms differ in marks, too."""
FASTER, SLOWER = BLUE, RED
FORM_COLOURS, MARKS = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY), "osD^vPX"
MODEL_COLOURS = {
    "PyG fp32": "#bbbbbb",
    "PyG's best": "#777777",
    "Bi-GCN emulated": PURPLE,
    "full, from fp32": SKY,
    "full, packed": BLUE,
    "bin, from fp32": "#f5d38a",
    "bin, packed": ORANGE,
}
MODEL_PANELS: tuple[tuple[str, Callable[[float], str], int], ...] = (
    ("latency of one forward (logarithmic)", format_seconds, 10),
    ("times faster than PyG's best (logarithmic)", format_ratio, 10),
)
WIDTH = 9.0
"""Inches of a chart: a page's width at the size of its letters."""
SQUARE = {"marker": "s", "markersize": 9}
LEAST_GAP = -15.0
"""Lower end of a panel: a value below is an arrow with its number."""
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


def _styles(*forms: str) -> dict[str, dict[str, Any]]:
    """Colour and mark of each form; "fp32", "full" and "bin" have the same on every chart."""
    order = dict.fromkeys(("bin", "full", *forms))
    styles: list[dict[str, Any]] = [
        {"color": c, "marker": m} for c, m in zip(FORM_COLOURS, MARKS, strict=False)
    ]
    return {form: styles[n % len(styles)] for n, form in enumerate(order) if form in forms}


def _legend(figure: Figure, styles: Mapping[str, Mapping[str, Any]]) -> None:
    handles = [Line2D([], [], label=name, ls="", **style) for name, style in styles.items()]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(len(handles), 4), fontsize=9
    )


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
    figure = Figure(figsize=(WIDTH, 1.5 + 0.2 * len(rows)), layout="constrained")
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
    styles, errors = _styles(*(row["form"] for row in record["summary"])), _errors(record)
    figure = Figure(figsize=(WIDTH, 1.6 + 0.27 * len(graphs)), layout="constrained")
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for axes, (model, rows) in zip(panels, models.items(), strict=True):
        for number, row in enumerate(rows):
            offset = 0.2 * (number - (len(rows) - 1) / 2)
            places = [graphs.index(graph) + offset for graph in row["gaps"]]
            spread = [errors.get((model, row["form"], graph), 0.0) for graph in row["gaps"]]
            axes.errorbar(
                list(row["gaps"].values()), places, xerr=spread, ls="", ms=5, lw=1, capsize=2,
                **styles[row["form"]],
            )  # fmt: skip
        gaps = sorted(gap for row in rows for gap in row["gaps"].values())
        if gaps and gaps[0] < LEAST_GAP:  # a float model that did not learn: its mark is an arrow
            axes.set_xlim(LEAST_GAP, None)
            for graph in {g for row in rows for g, gap in row["gaps"].items() if gap < LEAST_GAP}:
                lowest = min(row["gaps"][graph] for row in rows)
                place = (LEAST_GAP, graphs.index(graph))
                axes.annotate(f"◂ {lowest:.0f}", place, fontsize=8, va="center")
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_title(model, fontsize=10)
        axes.set_xlabel("points behind fp32", fontsize=9)
        axes.grid(linewidth=0.3)
    panels[0].set_yticks(range(len(graphs)), graphs, fontsize=9)
    panels[0].set_ylim(len(graphs) - 0.5, -0.5)
    _legend(figure, styles)
    title = "Mean gap of test scores ± standard error (below 0: better than fp32)"
    return _titled(figure, title, record)


def _errors(record: Record) -> dict[tuple[str, str, str], float]:
    """Standard error of the gap over seeds by panel, form and graph, where there are several."""
    floats = {
        (r["graph"], r["layer"], r["layers"], r["seed"]): r["test"]
        for r in record["runs"] if r.get("form") == "fp32" and "failed" not in r
    }  # fmt: skip
    gaps: dict[tuple[str, str, str], list[float]] = {}
    for run in record["runs"]:
        if "students" in run:
            for form, student in run["students"].items():
                gaps.setdefault((run["model"], form, run["graph"]), []).append(student["gap"])
        elif "failed" not in run:
            teacher = floats.get((run["graph"], run["layer"], run["layers"], run["seed"]))
            panel = f"{run['layer']}, {run['layers']} layers"
            if teacher is not None:
                own = gaps.setdefault((panel, run["form"], run["graph"]), [])
                own.append(teacher - run["test"])
    return {
        key: statistics.stdev(own) / len(own) ** 0.5 for key, own in gaps.items() if len(own) > 1
    }


def models_chart(record: Record) -> Figure:
    """Bars of latency and speed-up over PyG's best of every case; memory has a table."""
    results = record["results"]
    figure = Figure(figsize=(WIDTH, 1.6 + 1.2 * len(results)), layout="constrained")
    panels = figure.subplots(1, len(MODEL_PANELS), sharey=True)
    step = 0.86 / len(MODEL_COLOURS)
    for axes, (title, text, base), column in zip(
        panels, MODEL_PANELS, zip(*map(_of_model, results), strict=True), strict=True
    ):
        for row, found in enumerate(column):
            for number, (name, colour) in enumerate(MODEL_COLOURS.items()):
                if value := found.get(name):
                    y = row + (number - (len(MODEL_COLOURS) - 1) / 2) * step
                    axes.barh(y, value, 0.9 * step, color=colour)
                    _value(axes, text(value), value, y, 8)
        axes.set_title(title, fontsize=10)
        _logarithmic(axes, text, LogLocator(base=base))
        axes.margins(x=0.23, y=0.01)
    names = [f"{result['model']}\n{result['graph_name']}" for result in results]
    panels[0].set_yticks(range(len(results)), names, fontsize=9)
    panels[0].invert_yaxis()
    panels[-1].axvline(1, color="black", linewidth=0.8)
    _legend(figure, {name: {"color": c, **SQUARE} for name, c in MODEL_COLOURS.items()})
    return _titled(figure, "Whole models, medians", record)


def _of_model(result: Record) -> tuple[Found, Found]:
    """Seconds, and times faster than PyG's best, by the names of ``MODEL_COLOURS``."""
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
    ratios = {name: best / value for name, value in seconds.items() if best and value}
    return seconds | {"PyG's best": best}, ratios
