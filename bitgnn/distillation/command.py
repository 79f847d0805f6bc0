"""The command `bitgnn distill`: train a teacher where there is none, distill, write and report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from rich.console import Console

from bitgnn._files import alone_in, write_atomically
from bitgnn._plain import record_job
from bitgnn.convert import GraphConfig
from bitgnn.data import NeighborLoader
from bitgnn.distillation import ranks
from bitgnn.distillation.named import (
    LAYERS,
    NamedModel,
    distilled,
    named_device,
    named_graph,
    sizes,
)
from bitgnn.distillation.result import Cost, Distilled
from bitgnn.inference import save
from bitgnn.measure.report import csv_text, environment, write_json

COMMAND_FILE, LOG, MODEL = "command.json", "log", "model"
SAMPLED = ("batch_size", "num_neighbors")
"""Options without a meaning for a whole graph."""
NEIGHBORS = 10
"""Neighbours of each node that a batch draws in each hop."""
KEPT = ("metric", "ended", "judgement", "smoothing")
"""Of a result, in the report as they are."""


class DistillInterrupted(KeyboardInterrupt):
    """Distilling was stopped by Ctrl-C; the message says what was kept."""


@dataclass(frozen=True)
class DistillCommand:
    """Options of the command line, named as in ``bitgnn distill --help``."""

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
    batch_size: int | None = None
    num_neighbors: Sequence[int] | None = None


def run_distill(command: DistillCommand, console: Console) -> Distilled:
    """Distill a model on a graph, print the report and write the files.

    Ranks of torchrun train together, and the first one writes.
    """
    device = named_device(command.device)
    with ExitStack() as held:
        if ranks.is_launched():
            held.enter_context(ranks.group(device.type))
        return _run(command, device, console, held)


def _run(
    command: DistillCommand, device: torch.device, console: Console, held: ExitStack
) -> Distilled:
    command.model.kind()  # what is mistyped is refused before any file is read
    GraphConfig(command.precision)
    if ranks.count() > 1 and command.batch_size is None:
        raise ValueError("batch-size must be given where several ranks train, got none")
    data = named_graph(command.data, command.data_root, command.seed)
    model = command.model.make(data, command.seed, device)
    loader, is_first = None, ranks.rank() == 0
    if command.batch_size is not None:
        hops = command.num_neighbors or [NEIGHBORS] * (command.model.layers or LAYERS)
        loader = NeighborLoader(data, list(hops), batch_size=command.batch_size, shuffle=True)
    values = {**asdict(command), **asdict(command.model)}
    skipped = ("device", "output", *(SAMPLED if loader is None else ()))
    values = {key: value for key, value in values.items() if key not in skipped}
    wanted = json.loads(json.dumps(values, default=str))
    if is_first:
        held.enter_context(alone_in(command.output))
        is_begun = any((command.output / LOG).glob("*.checkpoint"))
        record_job(command.output / COMMAND_FILE, wanted, is_begun)
    console.print(sizes(data.name, data), highlight=False)
    try:
        result = distilled(
            model, data, command.precision, widen=command.widen, loader=loader,
            epochs=command.epochs, budget=command.budget, seed=command.seed,
            log=command.output / LOG, trained=command.model.is_trained,
        )  # fmt: skip
    except KeyboardInterrupt:
        kept = f"stopped; checkpoints are kept in {command.output}, the same command goes on"
        raise DistillInterrupted(kept if is_first else "") from None
    if is_first:
        console.print(str(result), highlight=False, soft_wrap=True)
        costs = result.costs()
        console.print(result.cost_table(costs), highlight=False)
        written = _write(command, result, costs)
        console.print("Written: " + ", ".join(map(str, written)), soft_wrap=True)
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
        **{name: getattr(command, name) for name in ("precision", "widen", "seed")},
        "epochs": len(result.history),
        "teacher_epochs": len(result.teacher_history),
        **{name: getattr(result, name) for name in KEPT},
        "scores": {"teacher": asdict(result.teacher_scores), "binary": asdict(result.scores)},
        "gap_points": result.gap,
        "gap_error_points": result.gap_error,
        "seconds": {"student": result.seconds, "teacher": result.teacher_seconds},
        "costs": {name: asdict(cost) for name, cost in costs.items()},
        "environment": environment(),
    }
