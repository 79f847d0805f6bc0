"""Writes what an experiment found: JSON record, CSV table, chart, and the packed models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch_geometric.data import Data

from bitgnn._files import write_atomically
from bitgnn.inference import save
from bitgnn.measure.report import (
    csv_text,
    environment,
    format_bytes,
    format_seconds,
    open_frame,
    png,
    write_json,
)
from bitgnn.train.config import FLOAT_FORM, ExperimentConfig
from bitgnn.train.deploy import FormResult

TITLES = {"gcn": "GCN", "sage": "GraphSAGE", "graphconv": "GraphConv", "indgcn": "inductive GCN"}
"""Models whose names are short, in text."""
COLUMNS = (
    "form",
    "seeds",
    "score_mean_percent",
    "score_std_points",
    "model_bytes",
    "activation_bytes",
    "feature_bytes",
    "graph_bytes",
    "peak_bytes",
    "latency_median_ms",
    "latency_of",
    "float_features_latency_median_ms",
)


def form_label(form: str) -> str:
    """A form's name with whose arithmetic it is."""
    return f"{'PyG' if form == FLOAT_FORM else 'bitgnn'} {form}"


def experiment_title(config: ExperimentConfig) -> str:
    """Model and graph, such as ``GCN on Cora``."""
    return f"{TITLES.get(config.model, config.model)} on {config.dataset.title}"


def graph_record(config: ExperimentConfig, data: Data) -> dict[str, Any]:
    """Name and sizes of a graph, in plain values."""
    return {
        "name": config.dataset.title,
        "nodes": data.x.size(0),
        "edges": data.edge_index.size(1),
        "features": data.x.size(1),
        "classes": int(data.y.max()) + 1,
        **{f"{name}_nodes": int(data[f"{name}_mask"].sum()) for name in ("train", "val", "test")},
    }


def result_record(
    config: ExperimentConfig, data: Data, results: Sequence[FormResult]
) -> dict[str, Any]:
    """Everything in plain values: configuration, machine, sizes, every run and every repeat."""
    return {
        "experiment": config.name,
        "config": config.model_dump(mode="json"),
        "environment": environment(),
        "graph": graph_record(config, data),
        "metric": results[0].runs[0].metric,
        "forms": {
            result.form: {
                "score_mean_percent": result.mean,
                "score_std_points": result.std,
                "runs": [asdict(run) for run in result.runs],
                "memory_bytes": None if result.memory is None else result.memory.to_dict(),
                "latency": {way: timing.to_dict() for way, timing in result.timings.items()},
                "frozen_equals_trained": not any(run.differing for run in result.runs),
            }
            for result in results
        },
    }


def write_results(
    folder: Path, config: ExperimentConfig, data: Data, results: Sequence[FormResult]
) -> list[Path]:
    """Write ``results.json``, ``results.csv``, ``results.png`` and ``model-<form>/``.

    Args:
        folder: existing output folder.
        config: the experiment.
        data: its graph.
        results: what :func:`~bitgnn.train.measured` returned.

    Returns:
        The files and folders written.

    Raises:
        OSError: something cannot be written; what was there before stays whole.
    """
    record, table, chart = (folder / f"results.{ending}" for ending in ("json", "csv", "png"))
    write_json(record, result_record(config, data, results))
    write_atomically(table, _csv(results).encode())
    write_atomically(chart, draw_chart(experiment_title(config), results))
    models = [
        save(result.frozen, folder / f"model-{result.form}")
        for result in results
        if result.frozen is not None
    ]
    return [record, table, chart, *models]


def _csv(results: Sequence[FormResult]) -> str:
    rows: list[Sequence[Any]] = [COLUMNS]
    for result in results:
        way, timing = result.fastest
        from_floats = result.timings.get("float features", timing)
        use = result.memory
        sizes: Sequence[int | str] = [""] * 5
        if use is not None:
            sizes = [use.weights, use.activations, use.features, use.adjacency, use.peak]
        score = f"{result.mean:.2f}", f"{result.std:.2f}"
        head = [form_label(result.form), len(result.runs), *score]
        times = [f"{1e3 * timing.median:.4f}", way, f"{1e3 * from_floats.median:.4f}"]
        rows.append([*head, *sizes, *times])
    return csv_text(rows)


def result_table(config: ExperimentConfig, results: Sequence[FormResult], threads: int) -> Table:
    """The results for a terminal.

    Args:
        config: the experiment.
        results: what :func:`~bitgnn.train.measured` returned.
        threads: of the processor during the measurement.
    """
    title = f"{experiment_title(config)}, {threads} thread{'s' if threads > 1 else ''}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    score = f"{results[0].runs[0].metric} %"
    for name in ("", score, "model", "working", "peak", "latency", "speed"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for result in results:
        timing = result.fastest[1]
        ratio = results[0].fastest[1].median / timing.median
        use = result.memory
        sizes = ["", "", ""]
        if use is not None:
            sizes = [format_bytes(n) for n in (use.weights, use.activations, use.peak)]
        table.add_row(
            form_label(result.form),
            f"{result.mean:.1f} ± {result.std:.1f}",
            *sizes,
            format_seconds(timing.median),
            f"{ratio:.2f}x",
        )
    return table


FORM_COLORS = {"fp32": "#8a8f98", "full": "#3d7ea6", "bin": "#d1603d"}
OTHER_COLORS = ("#6a9a5b", "#8a6fb0", "#c9a227", "#4fa3a0", "#b0647f")
PARTS = {
    "features": ("features", "#3d7ea6"),
    "graph": ("adjacency", "#8fb8ce"),
    "activations": ("activations", "#e0a458"),
    "weights": ("weights", "#d1603d"),
}
"""Name, attribute and colour of each part of the memory."""


def _form_color(form: str, number: int) -> str:
    """Colour of the ``number``-th form."""
    return FORM_COLORS.get(form, OTHER_COLORS[number % len(OTHER_COLORS)])


def draw_chart(title: str, results: Sequence[FormResult]) -> bytes:
    """Three panels as a PNG.

    Returns:
        Bytes of the image.
    """
    figure = Figure(figsize=(12.5, 1.6 + 0.62 * len(results)), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    accuracy, memory, latency = panels
    names = [form_label(result.form) for result in results]
    colors = [_form_color(result.form, number) for number, result in enumerate(results)]

    means, spreads = [r.mean for r in results], [r.std for r in results]
    error = {"ecolor": "#333333", "capsize": 3}
    accuracy.barh(names, means, xerr=spreads, color=colors, height=0.6, error_kw=error)
    texts = [f"{r.mean:.1f} ± {r.std:.1f}" for r in results]
    _annotate(accuracy, texts, [r.mean + r.std for r in results])
    accuracy.set_xticks(range(0, 101, 20))
    score = results[0].runs[0].metric
    accuracy.set_title(f"Test {score}, % (mean ± std of {len(results[0].runs)} seeds)")

    left = [0.0] * len(results)
    for part, (attribute, color) in PARTS.items():
        # Where the memory is not counted it is None, which has none of the attributes.
        sizes = [getattr(result.memory, attribute, 0) / 1024 for result in results]
        memory.barh(names, sizes, left=left, color=color, height=0.6, label=part)
        left = [before + size for before, size in zip(left, sizes, strict=True)]
    texts = ["" if r.memory is None else format_bytes(r.memory.peak) for r in results]
    _annotate(memory, texts, left)
    memory.set_title("Memory of a forward pass, KiB")
    memory.legend(fontsize=8, frameon=False, loc="center right")

    medians = [1e3 * result.fastest[1].median for result in results]
    latency.barh(names, medians, color=colors, height=0.6)
    texts = [f"{format_seconds(r.fastest[1].median)} ({r.fastest[0]})" for r in results]
    _annotate(latency, texts, medians)
    latency.set_title("Median latency of a forward pass, ms")

    accuracy.invert_yaxis()
    open_frame(*panels)
    for axes in panels:
        axes.tick_params(left=False)
    for axes in (memory, latency):
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.title.set_fontsize(10)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    return png(figure)


def _annotate(axes: Axes, texts: Sequence[str], ends: Sequence[float]) -> None:
    """Write each bar's value behind its end and leave room for it."""
    widest = max(ends)
    for row, (text, end) in enumerate(zip(texts, ends, strict=True)):
        axes.text(end + 0.02 * widest, row, text, va="center", fontsize=9)
    axes.set_xlim(0, 1.55 * widest or 1.0)
