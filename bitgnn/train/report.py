"""Results of an experiment: its best models measured beside PyG's floats, tables, chart, files."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from bitgnn._files import write_atomically
from bitgnn.inference import FrozenModel, MeasuredMemory, measured_memory, save
from bitgnn.measure.pyg import graph_forms
from bitgnn.measure.report import (
    csv_text,
    environment,
    format_bytes,
    format_seconds,
    open_frame,
    png,
    write_json,
)
from bitgnn.measure.timing import Timing, compare
from bitgnn.train.config import FLOAT_FORM, ExperimentConfig
from bitgnn.train.experiment import Forms, Run

FLOAT_BYTES = 4
# PyG gathers a row for each edge of an edge index; beyond this only fused products are timed.
MESSAGE_LIMIT = 8 * 2**30
FLOAT_FEATURES = "float features"


@dataclass(frozen=True)
class FormResult:
    """What one form achieves.

    Attributes:
        form: name of the form.
        runs: its trainings.
        memory: bytes of a forward pass from features as stored.
        timings: seconds of a forward pass by way of calling it.
        frozen: the packed model of the run with the best validation score; None for floats.
    """

    form: str
    runs: tuple[Run, ...]
    memory: MeasuredMemory
    timings: dict[str, Timing]
    frozen: Any

    @property
    def mean(self) -> float:
        """Mean score over the seeds, in per cent."""
        return 100 * statistics.mean(run.score for run in self.runs)

    @property
    def std(self) -> float:
        """Sample standard deviation of the score, in points; 0 for a single run."""
        scores = [100 * run.score for run in self.runs]
        return statistics.stdev(scores) if len(scores) > 1 else 0.0

    @property
    def fastest(self) -> tuple[str, Timing]:
        """The fastest way of calling it."""
        return min(self.timings.items(), key=lambda item: item[1].median)


Calls = dict[str, Callable[[], Any]]


def measured(
    config: ExperimentConfig, data: Data, forms: Forms, repeats: int = 15
) -> list[FormResult]:
    """Measure the best model of each form on the CPU, in the same minutes, the float one first.

    Args:
        config: the experiment.
        data: graph of the first seed.
        forms: finished runs with their models.
        repeats: timed rounds over all contenders.
    """
    names = (FLOAT_FORM, *config.forms)
    models = {form: copy.deepcopy(forms.best(form)[1]).cpu() for form in names}
    calls = {
        form: (_float_calls if form == FLOAT_FORM else _frozen_calls)(model, data)
        for form, model in models.items()
    }
    # Contenders are interleaved, so that load meets all of them alike.
    every = {f"{form}\0{way}": call for form in names for way, call in calls[form][0].items()}
    timings = compare(every, repeats=repeats)
    results = []
    for form, (ways, memory) in calls.items():
        own = {way: timings[f"{form}\0{way}"] for way in ways}
        frozen = None if form == FLOAT_FORM else models[form]
        results.append(FormResult(form, forms.of(form), memory, own, frozen))
    return results


def _frozen_calls(frozen: Any, data: Data) -> tuple[Calls, MeasuredMemory]:
    """Forwards of a frozen model: features packed before, and features as floats."""
    if not isinstance(frozen, FrozenModel):  # packed layer by layer, around the model's own forward
        calls: Calls = {FLOAT_FEATURES: partial(frozen, data.x, data.edge_index)}
        return calls, measured_memory(frozen, data.x, data.edge_index)
    graph = frozen.prepare_graph(data.edge_index, data.x.size(0))
    calls = {FLOAT_FEATURES: partial(frozen, data.x, graph)}
    if frozen.program.entry is None:  # nothing in front of the first layer can be packed before
        return calls, measured_memory(frozen, data.x, graph)
    packed = frozen.pack_features(data.x)
    calls["packed features"] = partial(frozen, packed, graph)
    return calls, measured_memory(frozen, packed, graph)


def _float_calls(model: nn.Module, data: Data) -> tuple[Calls, MeasuredMemory]:
    """The float model's forward for each form of the graph that is installed, caches filled."""
    sizes = [parameter.size(-1) for parameter in model.parameters() if parameter.dim() > 1]
    messages = FLOAT_BYTES * data.edge_index.size(1) * max([data.x.size(1), *sizes])
    calls: Calls = {}
    uses = []
    for way, graph in graph_forms(data.edge_index, data.x.size(0)).items():
        if way == "edge_index" and messages > MESSAGE_LIMIT:
            continue
        own = copy.deepcopy(model)
        for layer in own.modules():
            if isinstance(layer, GCNConv):
                layer.cached = True
        calls[way] = torch.inference_mode()(partial(own, data.x, graph))
        uses.append(measured_memory(own, data.x, graph))
    return calls, min(uses, key=lambda use: use.peak)


TITLES = {"gcn": "GCN", "sage": "GraphSAGE", "graphconv": "GraphConv", "indgcn": "inductive GCN"}
"""Models whose names are short, in text."""
MEMORY = ("weights", "forward", "features", "adjacency", "peak")
COLUMNS = (
    "form", "seeds", "score_mean_percent", "score_std_points", "model_bytes", "forward_bytes",
    "feature_bytes", "graph_bytes", "peak_bytes", "latency_median_ms", "latency_of",
    "float_features_latency_median_ms",
)  # fmt: skip


def form_label(form: str) -> str:
    """A form's name with whose arithmetic it is."""
    return f"{'PyG' if form == FLOAT_FORM else 'bitgnn'} {form}"


def experiment_title(config: ExperimentConfig) -> str:
    """Model and graph, such as ``GCN on Cora``."""
    return f"{TITLES.get(config.model, config.model)} on {config.dataset.title}"


def result_record(
    config: ExperimentConfig, data: Data, results: Sequence[FormResult]
) -> dict[str, Any]:
    """Everything in plain values: configuration, machine, sizes, every run and every repeat."""
    return {
        "experiment": config.name,
        "config": config.model_dump(mode="json"),
        "environment": environment(),
        "graph": {
            "name": config.dataset.title,
            "nodes": data.x.size(0),
            "edges": data.edge_index.size(1),
            "features": data.x.size(1),
            "classes": int(data.y.max()) + 1,
            **{
                f"{part}_nodes": int(data[f"{part}_mask"].sum())
                for part in ("train", "val", "test")
            },
        },
        "metric": results[0].runs[0].metric,
        "forms": {
            result.form: {
                "score_mean_percent": result.mean,
                "score_std_points": result.std,
                "runs": [asdict(run) for run in result.runs],
                "memory_bytes": result.memory.to_dict(),
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

    Gives the files and folders written; what was there before stays whole on an error.
    """
    record, table, chart = (folder / f"results.{ending}" for ending in ("json", "csv", "png"))
    write_json(record, result_record(config, data, results))
    write_atomically(table, _csv(results).encode())
    write_atomically(chart, draw_chart(experiment_title(config), results))
    packed = [result for result in results if result.frozen is not None]
    models = [save(result.frozen, folder / f"model-{result.form}") for result in packed]
    return [record, table, chart, *models]


def _csv(results: Sequence[FormResult]) -> str:
    rows: list[Sequence[Any]] = [COLUMNS]
    for result in results:
        way, timing = result.fastest
        from_floats = result.timings.get("float features", timing)
        sizes = [getattr(result.memory, part) for part in MEMORY]
        score = f"{result.mean:.2f}", f"{result.std:.2f}"
        head = [form_label(result.form), len(result.runs), *score]
        times = [f"{1e3 * timing.median:.4f}", way, f"{1e3 * from_floats.median:.4f}"]
        rows.append([*head, *sizes, *times])
    return csv_text(rows)


def result_table(config: ExperimentConfig, results: Sequence[FormResult], threads: int) -> Table:
    """The results for a terminal, measured with so many threads."""
    title = f"{experiment_title(config)}, {threads} thread{'s' if threads > 1 else ''}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    score = f"{results[0].runs[0].metric} %"
    for name in ("", score, "model", "working", "peak", "latency", "speed"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for result in results:
        timing = result.fastest[1]
        ratio = results[0].fastest[1].median / timing.median
        parts = ("weights", "forward", "peak")
        sizes = [format_bytes(getattr(result.memory, part)) for part in parts]
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
    "forward": ("forward", "#e0a458"),
    "weights": ("weights", "#d1603d"),
}
"""Name, attribute and colour of each part of the memory."""


def draw_chart(title: str, results: Sequence[FormResult]) -> bytes:
    """Three panels as a PNG."""
    figure = Figure(figsize=(12.5, 1.6 + 0.62 * len(results)), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    accuracy, memory, latency = panels
    names = [form_label(result.form) for result in results]
    colors = [
        FORM_COLORS.get(result.form, OTHER_COLORS[number % len(OTHER_COLORS)])
        for number, result in enumerate(results)
    ]

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
        sizes = [getattr(result.memory, attribute) / 1024 for result in results]
        memory.barh(names, sizes, left=left, color=color, height=0.6, label=part)
        left = [before + size for before, size in zip(left, sizes, strict=True)]
    texts = [format_bytes(r.memory.peak) for r in results]
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
