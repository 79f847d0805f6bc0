"""Commands that take a saved model of a graph: predict, evaluate, benchmark, summary."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bitgnn.cli.base import app, running
from bitgnn.cli.commands import Data, DataRoot, Quiet, Threads

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch_geometric.data import Data as Graph

    from bitgnn.inference import FrozenModel

SUFFIXES = (".npy", ".csv")
REPEATS = 15

Saved = Annotated[
    Path,
    typer.Argument(help="Folder of the model, as bitgnn.save wrote it, or a name of `bitgnn zoo`."),
]
Device = Annotated[str, typer.Option(help="Device to run on: cpu, cuda or auto.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the split of data that have none.")]


class _Job(NamedTuple):
    """A model and the graph it is to run on, both on one device."""

    model: FrozenModel
    data: Graph
    device: torch.device

    def scores(self) -> Tensor:
        """Result for all nodes: ``[N, C]`` scores, or int64 ``[N]`` classes."""
        from torch import Tensor

        found = self.model(self.data)
        nodes = self.data.x.size(0)
        if not isinstance(found, Tensor) or found.dim() not in (1, 2) or len(found) != nodes:
            got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"the model must give a row for each of {nodes} nodes, got {got}")
        return found


def _read(model: Path, data: str, device: str, data_root: str | None, seed: int = 0) -> _Job:
    """Check the arguments and the model before any data are loaded."""
    from bitgnn.distillation.named import named_device, named_graph
    from bitgnn.inference import FrozenModel
    from bitgnn.models import from_pretrained

    place, frozen = named_device(device), from_pretrained(model)
    if not isinstance(frozen, FrozenModel) or not frozen.takes_graph:
        raise ValueError(f"{model} must hold a model of graphs, got one of kind {frozen.kind!r}")
    if frozen.features == "packed":
        frozen.set_features("floats")  # the data are floats, and the scores the same
    return _Job(frozen.to(place), named_graph(data, data_root, seed).to(place), place)


def _print(found: dict[str, Any], as_json: bool, lines: list[str]) -> None:
    typer.echo(json.dumps(found) if as_json else "\n".join(lines))


@app.command(short_help="Scores of a saved model for all nodes.")
def predict(
    model: Saved,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File for the scores: .npy or .csv.")
    ],
    device: Device = "auto",
    data_root: DataRoot = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Run a saved model on a graph and write its scores, a row a node, in the order of the nodes.

    A .npy file holds what the model returns; a .csv file the class of each node, the column of its
    largest score, next to the scores.
    """
    with running(threads, quiet) as console:
        if output.suffix not in SUFFIXES:
            raise ValueError(f"--output must end in .npy or .csv, got {output.name}")
        import numpy as np

        from bitgnn._files import write_atomically

        scores = _read(model, data, device, data_root).scores().cpu().numpy()
        if output.suffix == ".npy":
            file = io.BytesIO()
            np.save(file, scores, allow_pickle=False)
            written = file.getvalue()
        else:
            written = _table(scores).encode()
        write_atomically(output, written)
        console.print(
            f"{len(scores)} nodes written to {output}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )


def _table(scores: Any) -> str:
    text = io.StringIO()
    columns = scores[:, None][:, :0] if scores.ndim == 1 else scores
    classes = scores if scores.ndim == 1 else scores.argmax(1)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["node", "class", *(f"score_{i}" for i in range(columns.shape[1]))])
    for node, (chosen, row) in enumerate(zip(classes, columns, strict=True)):
        writer.writerow([node, int(chosen), *map(float, row)])
    return text.getvalue()


@app.command(short_help="Score of a saved model on labelled nodes.")
def evaluate(
    model: Saved,
    data: Data,
    device: Device = "auto",
    seed: Seed = 0,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    threads: Threads = None,
) -> None:
    """Compare a saved model with the labels of a graph: training, validation and test nodes.

    The score is the accuracy for classes, the area under the ROC curve for labels of their own, and
    the share of the variance explained for values.
    """
    with running(threads):
        import torch

        from bitgnn.distillation.objectives import Classes, Objective, objective_of

        job = _read(model, data, device, data_root, seed)
        scores, y = job.scores(), getattr(job.data, "y", None)
        if y is None:
            raise ValueError(f"{data} must have labels to evaluate on, got none")
        masks = {name: getattr(job.data, f"{name}_mask", None) for name in ("train", "val", "test")}
        parts = {n: mask for n, mask in masks.items() if mask is not None and bool(mask.any())}
        if not parts:
            raise ValueError(f"{data} must have a train_mask, val_mask or test_mask, got none")
        some = y[next(iter(parts.values()))]
        if scores.dim() == 1:
            objective: Objective = Classes()
            scores = torch.nn.functional.one_hot(scores, job.model.out_channels or -1)
        else:
            objective = objective_of(some, scores.size(1))
        y = objective.form(y, len(y))
        for name, mask in parts.items():
            objective.check(y[mask], scores.size(1), f"{name}_mask")
        found = {n: float(objective.score(scores[m].float(), y[m])) for n, m in parts.items()}
        record = {"model": str(model), "data": data, "metric": objective.metric, **found}
        lines = [f"{n:6s}{value:8.4f}  {int(parts[n].sum())} nodes" for n, value in found.items()]
        _print(record, as_json, [objective.metric, *lines])


@app.command(short_help="Time and memory of a saved model.")
def benchmark(
    model: Saved,
    data: Data,
    device: Device = "auto",
    data_root: DataRoot = None,
    as_json: AsJson = False,
    threads: Threads = None,
) -> None:
    """Measure forwards of a saved model on a graph: from floats and from packed features.

    Medians of 15 interleaved repeats with warm caches, of the model itself and of the captured
    call; on a GPU between events on the stream.
    """
    with running(threads):
        import bitgnn
        from bitgnn.inference import memory_report
        from bitgnn.measure.report import environment, format_bytes, format_seconds
        from bitgnn.measure.timing import Clock

        job = _read(model, data, device, data_root)
        frozen, clock = job.model, Clock(job.device.type)
        graph = frozen.prepare_graph(job.data.edge_index, job.data.x.size(0))
        forms = {"floats": job.data.x}
        if frozen.program.entry is not None:
            forms["packed"] = frozen.pack_features(job.data.x)
        ready = {}
        for name, x in forms.items():
            run = bitgnn.capture(frozen, x, graph)
            ready[f"{name}, call"] = clock.prepare(partial(frozen, x, graph))
            ready[f"{name}, captured"] = clock.prepare(run)
        times, failed = clock.rounds(ready, REPEATS)
        for error in failed.values():
            raise error
        memory = memory_report(frozen, (job.data.x, graph)).measured
        record = {
            "model": str(model), "data": data, "device": str(job.device),
            "seconds": {name: timing.median for name, timing in times.items()},
            "repeats": {name: list(timing.seconds) for name, timing in times.items()},
            "bytes": memory.to_dict(), "environment": environment(),
        }  # fmt: skip
        lines = [f"{name:18s}{format_seconds(t.median):>12s}" for name, t in times.items()]
        lines += [f"{name:18s}{format_bytes(n):>12s}" for name, n in memory.to_dict().items()]
        _print(record, as_json, lines)


@app.command(short_help="Layers of a saved model.")
def summary(model: Saved, as_json: AsJson = False) -> None:
    """Print the layers of a saved model: letters, bits, bytes and the share of work on bits."""
    with running():
        import bitgnn
        from bitgnn.models import from_pretrained

        found = bitgnn.summary(from_pretrained(model))
        _print(found.to_dict(), as_json, [str(found).rstrip()])
