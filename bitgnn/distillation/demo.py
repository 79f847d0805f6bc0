"""The command `bitgnn demo`: a float GCN and its binary forms on a graph of digits, compared."""

from __future__ import annotations

import copy
import statistics
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from bitgnn._files import alone_in, write_atomically
from bitgnn._plain import record_job
from bitgnn.data import load
from bitgnn.distillation.named import NamedModel, distilled, sizes
from bitgnn.distillation.result import Cost, Distilled
from bitgnn.inference import save
from bitgnn.measure.pyg import graph_forms
from bitgnn.measure.report import (
    environment,
    format_bytes,
    format_seconds,
    open_frame,
    png,
    write_json,
)
from bitgnn.measure.timing import compare

FLOAT_FORM, FORMS = "fp32", ("full", "bin")
HIDDEN = 128
RUNS_FOLDER, JOB_FILE = "runs", "demo.json"
TOLERANCE = 1e-3
"""Share of nodes that may get another class, because floats are summed in another order."""
REPEATS = 15
COLORS = ("#8a8f98", "#3d7ea6", "#d1603d")


class DemoInterrupted(KeyboardInterrupt):
    """The demo was stopped by Ctrl-C; the message says what was kept."""


@dataclass
class Form:
    """One form of the model.

    Attributes:
        name: ``fp32``, ``full`` or ``bin``.
        scores: test accuracies in per cent, one a seed.
        val: best validation accuracy so far.
        model: the float or frozen model with that accuracy.
        cost: time and bytes of its forward.
    """

    name: str
    scores: list[float]
    val: float = -1.0
    model: Any = None
    cost: Cost | None = None

    def add(self, test: float | None, val: float, model: nn.Module) -> None:
        """Add one training; the model stays if it is the best so far."""
        self.scores.append(100 * (val if test is None else test))
        if val > self.val:
            self.val, self.model = val, model

    @property
    def label(self) -> str:
        """Name with the library that computes it."""
        return f"{'PyG' if self.name == FLOAT_FORM else 'bitgnn'} {self.name}"

    @property
    def score(self) -> str:
        """Mean accuracy, with the sample standard deviation where there are several."""
        spread = f" ± {statistics.stdev(self.scores):.1f}" if len(self.scores) > 1 else ""
        return f"{statistics.mean(self.scores):.1f}{spread}"


def run_demo(output: Path, seeds: int, console: Console) -> list[Form]:
    """Train the forms with every seed, freeze, check and measure them, and write the results.

    Trainings that the folder holds already are not repeated.

    Raises:
        RuntimeError: a frozen model gives another class than the trained one to more nodes than
            rounding explains.
    """
    with alone_in(output):
        job = {"data": "digits", "hidden": HIDDEN, "forms": list(FORMS)}
        is_begun = any((output / RUNS_FOLDER).glob("*/*.checkpoint"))
        record_job(output / JOB_FILE, job, is_begun)
        data = load("digits")
        console.print(sizes("digits", data), highlight=False)
        try:
            forms, differing = train_forms(data, output / RUNS_FOLDER, seeds, console)
        except KeyboardInterrupt:
            raise DemoInterrupted(
                f"stopped; checkpoints are kept in {output}, the same command goes on"
            ) from None
        measure_forms(forms, data)
        console.print(result_table(forms))
        agree = f"differ on {differing} nodes" if differing else "agree on every node of every seed"
        console.print(f"Frozen and trained models {agree}.", highlight=False)
        record = {form.name: {"scores": form.scores, **vars(form.cost)} for form in forms}
        write_json(output / "results.json", {"forms": record, "environment": environment()})
        write_atomically(output / "results.png", draw_chart(forms))
        for form in forms[1:]:
            save(form.model, output / f"model-{form.name}")
        console.print(f"Written: results.json, results.png and models in {output}", soft_wrap=True)
    return forms


def train_forms(data: Data, folder: Path, seeds: int, console: Console) -> tuple[list[Form], int]:
    """The trained forms, the float one first, and on how many nodes frozen models differ."""
    forms = {name: Form(name, []) for name in (FLOAT_FORM, *FORMS)}
    total = 0
    for seed in range(seeds):
        model: nn.Module = NamedModel("gcn", HIDDEN).make(data, seed, torch.device("cpu"))
        for name in FORMS:
            is_first = name == FORMS[0]
            result = distilled(
                model, data, name, seed=seed, log=folder / f"{name}-{seed}", trained=not is_first
            )
            if is_first:
                model, scores = result.teacher, result.teacher_scores
                forms[FLOAT_FORM].add(scores.test, scores.val, model)
            total += differing_nodes(result, f"form {name}, seed {seed}")
            forms[name].add(result.scores.test, result.scores.val, result.frozen)
            console.print(
                f"digits {name}, seed {seed + 1} of {seeds}: {forms[name].scores[-1]:.1f} in "
                f"{len(result.history)} epochs",
                highlight=False,
            )
    return list(forms.values()), total


@torch.no_grad()
def differing_nodes(result: Distilled, title: str) -> int:
    """Number of nodes to which the frozen model gives another class than the trained one."""
    graph: Any = result.example
    expected = result.model(graph.x, graph.edge_index).argmax(1)
    differing = int((result.frozen(graph.x, graph.edge_index).argmax(1) != expected).sum())
    if differing > TOLERANCE * len(expected):
        raise RuntimeError(
            f"{title}: the frozen model gives another class than the trained one to {differing} of "
            f"{len(expected)} nodes"
        )
    return differing


def measure_forms(forms: list[Form], data: Data) -> None:
    """Measure all forms in turns: the float model in the faster of PyG's graph forms."""
    calls: dict[str, Any] = {}
    for form in forms:
        model = form.model
        graphs = {"": data.edge_index}
        if form.name == FLOAT_FORM:
            model = copy.deepcopy(model)
            for layer in model.modules():
                if isinstance(layer, GCNConv):
                    layer.cached = True
            graphs = graph_forms(data.edge_index, data.x.size(0))
        for way, graph in graphs.items():
            own = copy.deepcopy(model)  # a cache is of one graph
            calls[f"{form.name} {way}"] = torch.inference_mode()(partial(own, data.x, graph))
    timings = compare(calls, repeats=REPEATS)
    for form in forms:
        state = (*form.model.parameters(), *form.model.buffers())
        seconds = min(t.median for way, t in timings.items() if way.split()[0] == form.name)
        form.cost = Cost(seconds, sum(t.numel() * t.element_size() for t in state))


def result_table(forms: list[Form]) -> Table:
    """Accuracy, bytes and latency of all forms, for a terminal."""
    threads = torch.get_num_threads()
    title = f"GCN on digits, {threads} thread{'s' if threads > 1 else ''}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for name in ("", "accuracy %", "model", "latency", "speed"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    costs: list[Any] = [form.cost for form in forms]
    for form, cost in zip(forms, costs, strict=True):
        size, seconds = format_bytes(cost.weight_bytes), format_seconds(cost.seconds)
        ratio = costs[0].seconds / cost.seconds
        table.add_row(form.label, form.score, size, seconds, f"{ratio:.2f}x")
    return table


def draw_chart(forms: list[Form]) -> bytes:
    """Accuracy, bytes and latency of all forms as bars, a PNG."""
    costs: list[Any] = [form.cost for form in forms]
    panels = {
        "Test accuracy, %": (
            [statistics.mean(form.scores) for form in forms], [form.score for form in forms]
        ),
        "Weights": (
            [cost.weight_bytes for cost in costs], [format_bytes(c.weight_bytes) for c in costs]
        ),
        "Latency of a forward": (
            [cost.seconds for cost in costs], [format_seconds(cost.seconds) for cost in costs]
        ),
    }  # fmt: skip
    figure = Figure(figsize=(12, 3), layout="constrained")
    for axes, (title, (values, texts)) in zip(
        figure.subplots(1, 3, sharey=True), panels.items(), strict=True
    ):
        bars = axes.barh([form.label for form in forms], values, color=COLORS, height=0.6)
        axes.bar_label(bars, texts, padding=4, fontsize=9)
        axes.set_title(title, fontsize=10)
        axes.set_xlim(0, 1.4 * max(values))
        axes.tick_params(left=False, bottom=False, labelbottom=False)
        open_frame(axes)
    axes.invert_yaxis()  # shared by all panels
    return png(figure)
