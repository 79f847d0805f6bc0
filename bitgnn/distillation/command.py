"""The command `bitgnn distill`: train a teacher where there is none, distill, write and report."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from rich.console import Console
from torch import nn
from torch_geometric.data import Data

from bitgnn._files import alone_in, write_atomically
from bitgnn._plain import record_job
from bitgnn.distillation import distill
from bitgnn.distillation.named import NamedModel, named_device, named_graph
from bitgnn.distillation.result import Cost, Distilled
from bitgnn.inference import save
from bitgnn.measure.report import csv_text, environment, write_json

__all__ = ["DistillCommand", "DistillInterrupted", "run_distill"]

COMMAND_FILE, LOG, MODEL = "command.json", "log", "model"


class DistillInterrupted(KeyboardInterrupt):
    """Distilling was stopped by Ctrl-C; the message says what was kept."""


@dataclass(frozen=True)
class DistillCommand:
    """What the command line says, in the words of ``bitgnn distill --help``."""

    data: str
    model: NamedModel = field(default_factory=NamedModel)
    precision: str = "bin"
    widen: float | None = None
    epochs: int | None = None
    budget: float | None = None
    seed: int = 0
    device: str = "auto"
    output: Path = Path("bitgnn-distill")
    data_root: str | None = None


def run_distill(command: DistillCommand, console: Console) -> Distilled:
    """Distill a model on a graph, print the report and write the files.

    Args:
        command: what to do.
        console: where the report is printed.

    Returns:
        The result.

    Raises:
        DataError: the graph cannot be had.
        FileError: a file of the graph or of the weights is damaged or does not fit.
        DistillError: see :func:`bitgnn.distill`.
        OutputError: the output folder cannot be written, holds another distillation, or another
            process is at work in it.
        DistillInterrupted: stopped by Ctrl-C.
        ValueError: model, device or another option is wrong.
    """
    device = named_device(command.device)
    data = named_graph(command.data, command.data_root, command.seed)
    model = command.model.make(data, command.seed, device)
    with alone_in(command.output):
        _match(command)
        console.print(
            f"{data.name}: {data.x.size(0)} nodes, {data.edge_index.size(1)} edges, "
            f"{data.x.size(1)} features",
            highlight=False,
        )
        result = _distill(command, model, data)
        console.print(str(result), highlight=False, soft_wrap=True)
        costs = result.costs()
        console.print(result.cost_table(costs), highlight=False)
        written = _write(command, result, costs)
        console.print("Written: " + ", ".join(map(str, written)), soft_wrap=True)
    return result


def _match(command: DistillCommand) -> None:
    """Record the command, or refuse a folder that holds checkpoints of another one."""
    values = asdict(command)
    values = {**values, **values.pop("model")}
    values = {key: value for key, value in values.items() if key not in ("device", "output")}
    wanted = json.loads(json.dumps(values, default=str))
    is_begun = any((command.output / LOG).glob("*.checkpoint"))
    record_job(command.output / COMMAND_FILE, wanted, is_begun)


def _distill(command: DistillCommand, model: nn.Module, data: Data) -> Distilled:
    stopped = DistillInterrupted(
        f"stopped; checkpoints are kept in {command.output}, the same command goes on"
    )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="distill: stopped by Ctrl-C")
            result = distill(
                model,
                data,
                command.precision,
                widen=command.widen,
                epochs=command.epochs,
                budget=command.budget,
                seed=command.seed,
                log=command.output / LOG,
                trained=command.model.is_trained,
            )
    except KeyboardInterrupt:
        raise stopped from None
    if result.interrupted:
        raise stopped
    return result


def _write(command: DistillCommand, result: Distilled, costs: dict[str, Cost]) -> list[Path]:
    """Write history, picture, report, weights of a teacher trained here, and the frozen model."""
    folder = command.output
    names = ("distill.csv", "distill.png", "distill.json", "teacher.safetensors")
    history, picture, report, teacher = (folder / name for name in names)
    written = [history, picture, report]
    header, rows = list(result.history[0]), [list(row.values()) for row in result.history]
    write_atomically(history, csv_text([header, *rows]).encode())
    write_atomically(picture, result.plot())
    write_json(report, _report(command, result, costs))
    if result.teacher_history:
        state = {key: t.cpu().contiguous() for key, t in result.teacher.state_dict().items()}
        write_atomically(teacher, safetensors.torch.save(state))
        written.append(teacher)
    return [*written, save(result.frozen, folder / MODEL)]


def _report(command: DistillCommand, result: Distilled, costs: dict[str, Cost]) -> dict[str, Any]:
    return {
        "data": command.data,
        "model": command.model.model,
        "precision": command.precision,
        "widen": command.widen,
        "seed": command.seed,
        "epochs": len(result.history),
        "teacher_epochs": len(result.teacher_history),
        "metric": result.metric,
        "scores": {"teacher": asdict(result.teacher_scores), "binary": asdict(result.scores)},
        "ended": result.ended,
        "gap_points": result.gap,
        "gap_error_points": result.gap_error,
        "judgement": result.judgement,
        "smoothing": result.smoothing,
        "seconds": {"student": result.seconds, "teacher": result.teacher_seconds},
        "costs": {name: asdict(cost) for name, cost in costs.items()},
        "environment": environment(),
    }
