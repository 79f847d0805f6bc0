"""Trains a model to tune in a short form: fp32, then its binary forms with fp32 as the teacher."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import seed_everything
from torch_geometric.data import Data

from bitgnn.bench.environment import cpu_model
from bitgnn.train.build import build_model, make_task, restore_model
from bitgnn.train.config import DatasetConfig, ExperimentConfig
from bitgnn.train.loop import TrainedModel, train_model
from bitgnn.train.recipe import Recipe, TeacherPropagation
from bitgnn.train.store import Run, RunStore
from bitgnn.tune.baselines import BI_GCN, PYG
from bitgnn.tune.budget import Budget

__all__ = ["SHORT_FORMS", "Trained", "short_experiment", "train_short"]

EPOCHS, BINARY_EPOCHS = 60, 100
PATIENCE = 10
"""Epochs without a lower validation loss that end the training of floats, whose best ones may come
early; binary forms are best where their learning rate has fallen to 0."""
_BINARY = Recipe(
    epochs=BINARY_EPOCHS,
    learning_rate=0.02,
    schedule="cosine",
    dropout=0.4,
    output_norm="batch",
    teachers=("fp32",),
    distill=16.0,
    teacher_propagation=TeacherPropagation(),
)
SHORT_FORMS = {
    "fp32": Recipe(
        epochs=EPOCHS,
        learning_rate=0.01,
        weight_decay=5e-4,
        dropout=0.5,
        input_norm=False,
        patience=PATIENCE,
    ),
    "bin": _BINARY.model_copy(update={"hidden_norm": "batch"}),
    "full": _BINARY,
}
"""Enough to tell plans apart on a citation graph within seconds; all take features as they are."""
TUNED = "bin"
FAMILIES = {"fp32": PYG, "full": BI_GCN}
TEACHERS_BY, TRAINED_BY, CUT_AT = 0.25, 0.5, 0.6
"""Part of the budget that training teachers may use up, and training; and where a training that
takes longer than expected is cut short."""
PROBED, LEAST_EPOCHS = 4, 10
"""Epochs of a trial that shows how many fit in the time, and how many are trained in any case."""


@dataclass(frozen=True)
class Trained:
    """Models of one data set.

    Attributes:
        model: the one to tune.
        baselines: the others by family of baselines; without those that there was no time for.
        shortened: epochs trained and epochs wanted, by form, where time was too short for all.
    """

    model: nn.Module
    baselines: dict[str, nn.Module]
    shortened: dict[str, tuple[int, int]]


def short_experiment(
    model: str, dataset: str, hidden_channels: int, epochs: int | None = None
) -> ExperimentConfig:
    """The training in front of a search as an experiment.

    Args:
        model: ``gcn``, ``graphsage`` or ``graphsaint``.
        dataset: as :func:`bitgnn.data.load` takes it; Flickr may lack its features.
        hidden_channels: width of hidden layers.
        epochs: of each form; None for :data:`SHORT_FORMS`' own.

    Raises:
        ValueError: an unknown model, or a number out of range.
    """
    forms = SHORT_FORMS
    if epochs is not None:
        forms = {name: r.model_copy(update={"epochs": epochs}) for name, r in forms.items()}
    content: dict[str, Any] = {
        "name": "tune",
        "dataset": DatasetConfig(name=dataset),
        "model": model,
        "hidden_channels": hidden_channels,
        "seeds": 1,
        "forms": {name: recipe.model_dump() for name, recipe in forms.items()},
    }
    return ExperimentConfig.model_validate(content)


def train_short(
    config: ExperimentConfig,
    data: Data,
    store: RunStore,
    device: torch.device,
    seed: int,
    budget: Budget,
    on_epochs: Callable[[int], Any] = lambda count: None,
) -> Trained:
    """Train every form, or take those that an output folder holds.

    Where the budget is too short, the form to tune has as many epochs as fit, with the learning
    rate falling to 0 over these, and a form that is a baseline alone is left out.

    Args:
        config: of :func:`short_experiment`.
        data: the graph.
        store: finished trainings.
        device: where to train.
        seed: of all random generators.
        budget: half of it may be used up.
        on_epochs: called with the number of epochs done since the last call.

    Raises:
        TrainingError: a training diverged.
        OSError: the store cannot be written.
    """
    models: dict[str, nn.Module] = {}
    logits: dict[str, Tensor] = {}
    shortened: dict[str, tuple[int, int]] = {}
    teachers = {name for _, recipe in config.ordered_forms() for name in recipe.teaching()}
    for form, recipe in config.ordered_forms():
        kept = store.load(form, seed)
        if kept is None:
            training = _Training(config, form, data, logits, device, seed, budget)
            epochs = recipe.epochs if form in teachers else training.epochs_that_fit()
            if epochs < recipe.epochs and form != TUNED:
                shortened[form] = 0, recipe.epochs
                on_epochs(recipe.epochs)
                continue
            until = TEACHERS_BY if form in teachers else CUT_AT
            store.save(*training.run(epochs, until, on_epochs))
            on_epochs(recipe.epochs - epochs)
            kept = store.load(form, seed)
            assert kept is not None, "it was just saved"
        else:
            on_epochs(recipe.epochs)
        if recipe.patience is None and kept[0].epochs < recipe.epochs:
            shortened[form] = kept[0].epochs, recipe.epochs
        models[form] = restore_model(config, form, data, kept[1]).to(device)
        if form in teachers:
            task = make_task(config, form, data, device)
            with torch.no_grad():
                logits[form] = models[form](task.x, task.evaluation_graph)
    baselines = {family: models[form] for form, family in FAMILIES.items() if form in models}
    return Trained(models[TUNED], baselines, shortened)


@dataclass(frozen=True)
class _Training:
    """One form's training."""

    config: ExperimentConfig
    form: str
    data: Data
    logits: dict[str, Tensor]
    device: torch.device
    seed: int
    budget: Budget

    def epochs_that_fit(self) -> int:
        """As many as the training half of the budget has time for, by a short trial."""
        wanted = self.config.forms[self.form].epochs
        if math.isinf(self.budget.seconds) or wanted <= LEAST_EPOCHS:
            return wanted
        before = self.budget.spent
        self._trained(PROBED)
        each = (self.budget.spent - before) / PROBED
        fitting = int((TRAINED_BY * self.budget.seconds - self.budget.spent) / each)
        return min(wanted, max(LEAST_EPOCHS, fitting))

    def run(
        self, epochs: int, until: float, on_epochs: Callable[[int], Any]
    ) -> tuple[Run, dict[str, Tensor]]:
        """Train for so many epochs, or until so much of the budget is used up."""
        trained = self._trained(
            epochs,
            on_epochs=on_epochs,
            should_stop=lambda: not self.budget.fits("epoch", until),
        )
        device = self.device
        machine = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_model()
        run = Run(
            self.form, self.seed, trained.test_score, trained.val_score, trained.val_loss,
            trained.epoch, trained.epochs, trained.seconds,
            f"{machine}, torch {torch.__version__}",
        )  # fmt: skip
        return run, trained.state

    def _trained(self, epochs: int, **options: Any) -> TrainedModel:
        config, form, device = self.config, self.form, self.device
        recipe = config.forms[form].model_copy(update={"epochs": epochs})
        seed_everything(self.seed)
        return train_model(
            build_model(config, form, self.data).to(device),
            make_task(config, form, self.data, device),
            recipe,
            teachers=[self.logits[name] for name in recipe.teaching()],
            **options,
        )
