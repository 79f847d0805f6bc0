"""The command `bitgnn tune`: a graph and a float model by name, tuned; writes what was found."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from bitgnn.distillation.named import NamedModel, named_device, named_graph, sizes
from bitgnn.inference import save
from bitgnn.tune.objective import Budget, Goal, parse_seconds
from bitgnn.tune.result import LimitsMissed, TuneResult
from bitgnn.tune.tuner import WIDTHS, tune

APPLIED = "model"
"""Folder of the packed model in the output folder."""
WRITING_SECONDS, WRITING_SHARE = 4.0, 0.1
"""Seconds and part of a budget, the lesser of the two, that are left for writing the files."""


@dataclass(frozen=True)
class TuneCommand:
    """Options of the command line, named as in ``bitgnn tune --help``.

    ``spent`` seconds of the budget are gone already, such as for starting.
    """

    data: str
    model: NamedModel = field(default_factory=NamedModel)
    objective: Any = "latency"
    constraints: Sequence[str] = ("accuracy drop <= 1%",)
    pins: Sequence[str] = ()
    widen: Sequence[float] = WIDTHS
    epochs: int | None = None
    budget: str | None = None
    seed: int = 0
    device: str = "cpu"
    output: Path = Path("bitgnn-tune")
    storage: Path | None = None
    apply: bool = False
    data_root: str | None = None
    spent: float = 0.0


def run_tune(command: TuneCommand, console: Console) -> TuneResult:
    """Tune a model on a graph, print what was found and write the files.

    The first line printed says what to take, or that no plan keeps the limits; then ``missed`` of
    the result is not None.
    """
    seconds = None if command.budget is None else parse_seconds(command.budget)
    if seconds is not None:
        seconds -= min(WRITING_SECONDS, WRITING_SHARE * seconds)
    budget = Budget(seconds, spent=command.spent)
    Goal.read(command.objective, command.constraints)  # before any file is read
    device = named_device(command.device)
    data = named_graph(command.data, command.data_root, command.seed)
    model = command.model.make(data, command.seed, device)
    Console(stderr=True).print(sizes(data.name, data))
    try:
        result = tune(
            model, data, command.objective, command.constraints, widen=command.widen,
            pins=command.pins or None, trained=command.model.is_trained, epochs=command.epochs,
            budget=budget, seed=command.seed, storage=command.storage, output=command.output,
        )  # fmt: skip
    except LimitsMissed as missed:
        result = missed.result
    verdict, *reasons = result.reasons
    console.print(verdict, soft_wrap=True, highlight=False)
    console.print(result.table())
    for reason in reasons:
        console.print(reason, soft_wrap=True, highlight=False)
    names = ("plan.yaml", "tune.csv", "tune.json", "tune.png")
    written = [command.output / name for name in names]
    if command.apply and result.missed is None:
        folder = command.output / APPLIED
        if folder.exists():
            shutil.rmtree(folder)
        save(result.freeze(), folder)
        written.append(folder)
    elif command.apply:
        console.print("The packed model is not written: its plan misses a limit.")
    console.print("Written: " + ", ".join(map(str, written)), soft_wrap=True)
    return result
