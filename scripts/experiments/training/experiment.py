"""Experiments: forms of a network over seeds, each trained, or found again if it is finished."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from rich.console import Console
from torch import Tensor, nn
from torch_geometric import seed_everything

from bitgnn.train.checkpoint import load_state
from bitgnn.train.experiment import make_progress
from bitgnn.train.run import RunOptions, keep_under_way, kept_state, named_errors
from bitgnn.train.store import RunFiles
from experiments.training.loop import Trained, train
from experiments.training.recorded import side_by_side
from experiments.training.task import Task

__all__ = ["Experiment", "Unit", "train_units"]


class Experiment(ABC):
    """One configuration with its data and the folder of its runs.

    Args:
        config: forms and seeds.
        folder: output folder of the runs.
        options: how often checkpoints are written.

    Attributes:
        run_kind: dataclass of a finished run, with ``form`` and ``seed``.

    Raises:
        OutputError: the folder cannot be written, or holds runs of another configuration.
    """

    run_kind: ClassVar[type]

    def __init__(self, config: Any, folder: Path, options: RunOptions) -> None:
        self.config, self.options = config, options
        self.store: RunFiles[Any] = RunFiles(folder, config, self.run_kind)

    @property
    def forms(self) -> Sequence[str]:
        """Everything to train with a seed, in order."""
        return list(self.config.forms)

    def recipe(self, form: str) -> Any:
        """How a form is trained."""
        return self.config.forms[form]

    def needs(self, form: str) -> str | None:
        """What must be trained before with the same seed."""
        teacher: str | None = self.recipe(form).teacher
        return teacher

    @abstractmethod
    def build(self, form: str) -> nn.Module:
        """The network of a form with fresh weights, on the device of the data."""

    @abstractmethod
    def task(self, form: str, model: nn.Module, teacher: nn.Module | None) -> Task:
        """What is trained."""

    @abstractmethod
    def run(self, form: str, seed: int, task: Task, trained: Trained) -> Any:
        """The finished run."""

    def initial(
        self, form: str, seed: int, model: nn.Module, teacher: nn.Module | None
    ) -> dict[str, Tensor] | None:
        """Weights to start from; None for the fresh ones."""
        return None

    def path(self, form: str, seed: int, ending: str) -> Path:
        """File of a finished run."""
        return self.store.runs / f"{form}-{seed}.{ending}"

    def train(
        self, form: str, seed: int, on_epochs: Callable[[int], None] = lambda count: None
    ) -> Generator[None, None, Any]:
        """Train, or take the run from the folder; waits until what it needs is there.

        Args:
            form: what to train.
            seed: of all random generators.
            on_epochs: called with the number of epochs done since the last call.

        Yields:
            None, often, so that other trainings get their turn.

        Raises:
            CheckpointError: a checkpoint does not fit or is damaged.
            TrainingError: the training diverged.
            OSError: the folder cannot be written.
        """
        store, recipe = self.store, self.recipe(form)
        kept = store.load(form, seed)
        if kept is not None:
            store.clear_leftovers(form, seed)
            on_epochs(recipe.epochs)
            return kept[0]
        before = self.needs(form)
        while before is not None and not self.path(before, seed, "json").is_file():
            yield
        teacher = None if recipe.teacher is None else self.trained(recipe.teacher, seed)
        seed_everything(seed)
        model = self.build(form)
        state = self.initial(form, seed, model, teacher)
        if state is not None:
            load_state(model, state, str(store.folder))
        task = self.task(form, model, teacher)
        keeping = keep_under_way(store, form, seed, self.options)
        with named_errors(self.config.name, form, seed):
            trained = yield from train(
                task, recipe, recipe.epochs, seed, keeping=keeping, on_epochs=on_epochs
            )
        run = self.run(form, seed, task, trained)
        store.save(run, trained.state)
        return run

    def trained(self, form: str, seed: int) -> nn.Module:
        """The network of a finished run in evaluation mode.

        Raises:
            TrainingError: the run is not in the folder.
            CheckpointError: its state does not fit the network.
        """
        model = self.build(form)
        load_state(model, kept_state(self.store, form, seed)[1], str(self.store.folder))
        return model.eval()


@dataclass(frozen=True, eq=False)
class Unit:
    """One form of an experiment with one seed."""

    experiment: Experiment
    form: str
    seed: int


def train_units(
    units: Sequence[Unit],
    device: torch.device,
    console: Console,
    finished: Callable[[Unit, Any], str],
    *,
    together: bool,
) -> None:
    """Train with a progress bar.

    Args:
        units: each behind what it needs.
        device: where.
        console: where the bar is drawn.
        finished: called with a unit and its run; what to print of it.
        together: side by side, each on a stream of its own; else one after the other.
    """
    total = sum(unit.experiment.recipe(unit.form).epochs for unit in units)
    with make_progress(console) as progress:
        bar = progress.add_task(f"{len(units)} trainings", total=total)

        def train_one(unit: Unit) -> Generator[None, None, None]:
            experiment, config = unit.experiment, unit.experiment.config
            run = yield from experiment.train(
                unit.form, unit.seed, lambda count: progress.advance(bar, count)
            )
            title = f"{config.title} {unit.form}, seed {unit.seed + 1}/{config.seeds}"
            console.print(f"{title}: {finished(unit, run)}")

        trainings = [train_one(unit) for unit in units]
        for group in [trainings] if together else [[training] for training in trainings]:
            side_by_side(group, device)
