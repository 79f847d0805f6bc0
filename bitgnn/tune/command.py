"""The command `bitgnn tune`: train a model in a short form, tune it, write what was found."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch_geometric.data import Data

from bitgnn.data import DataError, load
from bitgnn.inference import save
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.experiment import make_progress
from bitgnn.train.store import RunStore, alone_in
from bitgnn.train.task import check_data
from bitgnn.train.unit import RunOptions
from bitgnn.tune.budget import Budget, parse_seconds
from bitgnn.tune.improve import improved
from bitgnn.tune.objective import Constraint, check_objective, read_limits
from bitgnn.tune.pins import pinned_chains
from bitgnn.tune.result import LimitsMissed, TuneResult
from bitgnn.tune.study import check_file
from bitgnn.tune.training import (
    FLOATS_FORM,
    TUNED,
    Trained,
    form_model,
    short_experiment,
    train_short,
)
from bitgnn.tune.tuner import TuneInterrupted, default_storage, tune
from bitgnn.tune.workload import Workload

__all__ = ["TuneCommand", "run_tune"]

APPLIED = "model"
"""Folder of the packed model in the output folder."""
FLICKR = "flickr"
WRITING_SECONDS, WRITING_SHARE = 4.0, 0.1
"""Seconds and part of a budget, the lesser of the two, that are left for writing the files."""


@dataclass(frozen=True)
class TuneCommand:
    """What the command line says, in the words of ``bitgnn tune --help``.

    Attributes:
        spent: seconds of the budget that are gone already, such as for starting.
    """

    model: str
    dataset: str
    objective: Any = "latency"
    constraints: Sequence[str] = ("accuracy drop <= 1%",)
    pins: Sequence[str] = field(default_factory=tuple)
    budget: str | None = None
    finetune: int = 0
    device: str = "cpu"
    output: Path = Path("bitgnn-tune")
    storage: Path | None = None
    apply: bool = False
    data_root: str | None = None
    seed: int = 0
    hidden: int = 64
    epochs: int | None = None
    spent: float = 0.0


def run_tune(command: TuneCommand, console: Console) -> TuneResult:
    """Train fp32 and the forms to tune, tune, train on in the time left, print and write.

    Args:
        command: what to do.
        console: where results are printed; the first line says what to take, or that no plan keeps
            the limits.

    Returns:
        What was found; where its ``missed`` is not None, no plan is recommended.

    Raises:
        DataError: the graph cannot be had.
        OutputError: the output folder cannot be written, holds another training, or another process
            is at work in it.
        TuneInterrupted: stopped by Ctrl-C while training or tuning.
        ValueError: see :func:`bitgnn.tune.tuner.tune`.
    """
    seconds = None if command.budget is None else parse_seconds(command.budget)
    if seconds is not None:
        seconds -= min(WRITING_SECONDS, WRITING_SHARE * seconds)
    budget = Budget(seconds, spent=command.spent)
    check_objective(command.objective)
    limits = read_limits(command.constraints)
    config = short_experiment(command.model, command.dataset, command.hidden, command.epochs)
    device = RunOptions(command.device).torch_device()
    # What is mistyped is said before anything is loaded or trained; letters depend on no size.
    anything = Data(x=torch.zeros(2, 1), y=torch.arange(2))
    pinned_chains(form_model(config, TUNED, anything), command.pins)
    if command.storage is not None:
        check_file(command.storage)
    data = _load(command)
    check_data(data, config.metric, data.name)
    with alone_in(command.output):
        store = RunStore(command.output, config)
        return _run_alone(command, config, data, store, device, budget, limits, console)


def _run_alone(
    command: TuneCommand,
    config: ExperimentConfig,
    data: Any,
    store: RunStore,
    device: torch.device,
    budget: Budget,
    limits: Sequence[Constraint],
    console: Console,
) -> TuneResult:
    """What is done in the output folder, which no other process writes to."""
    Console(stderr=True).print(
        f"{data.name}: {data.x.size(0)} nodes, {data.edge_index.size(1)} edges, "
        f"{data.x.size(1)} features"
    )
    total = sum(recipe.epochs for recipe in config.forms.values())
    with make_progress(Console(stderr=True)) as bars:
        task = bars.add_task(f"training {', '.join(config.forms)}", total=total)
        try:
            trained = train_short(
                config, data, store, device, command.seed, budget,
                lambda count: bars.advance(task, count),
            )  # fmt: skip
        except KeyboardInterrupt:
            raise TuneInterrupted(
                f"stopped while training; trainings that ended are kept in {command.output}, "
                "the same call goes on from there",
                (),
            ) from None
    try:
        result = tune(
            trained.model,
            data,
            command.objective,
            limits,
            pins=command.pins or None,
            budget=budget,
            finetune=command.finetune,
            device=device,
            seed=command.seed,
            storage=command.storage or default_storage(command.output),
            trained=trained.baselines,
        )
    except LimitsMissed as missed:
        result = missed.result
    result = _trained_on(_remarked(result, trained), trained, data, budget, command)
    result.save(command.output)
    _show(result, command, console)
    return result


def _remarked(result: TuneResult, trained: Trained) -> TuneResult:
    """The result with what the budget did to the trainings."""
    remarks, doubt = list(result.remarks), result.doubt
    for form, (done, wanted) in trained.shortened.items():
        if form == FLOATS_FORM:
            doubt = f"the budget left time for {done} of up to {wanted} epochs of {form}"
        elif form == TUNED:
            remarks.append(
                f"The budget left time for {done} of {wanted} epochs of {form} before the search."
            )
        else:
            remarks.append(
                f"The budget left no time to train {form}: its baseline has the weights of {TUNED}."
                if done == 0
                else f"The budget left time for {done} of {wanted} epochs of {form}."
            )
    return replace(result, remarks=tuple(remarks), doubt=doubt)


def _trained_on(
    result: TuneResult, trained: Trained, data: Any, budget: Budget, command: TuneCommand
) -> TuneResult:
    """The result with what the time left over is good for."""
    workload = Workload.of(trained.model, data)
    with Console(stderr=True).status("training on in the time left"):
        try:
            return improved(result, workload, trained.more(), budget)
        except KeyboardInterrupt:
            result.save(command.output)
            raise TuneInterrupted(
                f"stopped while training on; what was found before is kept in {command.output}", ()
            ) from None


def _load(command: TuneCommand) -> Any:
    """The graph; Flickr with made-up features where its own are not at hand."""
    try:
        return load(command.dataset, command.data_root, seed=command.seed)
    except DataError:
        if command.dataset.lower() != FLICKR:
            raise
        return load(command.dataset, command.data_root, seed=command.seed, features="synthetic")


def _show(result: TuneResult, command: TuneCommand, console: Console) -> None:
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
