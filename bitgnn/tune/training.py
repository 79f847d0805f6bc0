"""Trains a model to tune in a short form: fp32, then its binary forms with fp32 as the teacher."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch_geometric import seed_everything
from torch_geometric.data import Data

from bitgnn.convert import binarize
from bitgnn.train.build import build_model, make_task
from bitgnn.train.checkpoint import load_state
from bitgnn.train.config import ConfigError, ExperimentConfig, check_config
from bitgnn.train.loop import TrainedModel, train_model
from bitgnn.train.recipe import Recipe, TeacherPropagation
from bitgnn.train.store import Run, RunStore
from bitgnn.train.unit import machine_name
from bitgnn.tune.baselines import BI_GCN, PYG
from bitgnn.tune.budget import Budget, Count, Pace
from bitgnn.tune.reference import FLOATS, is_cut

__all__ = ["SHORT_FORMS", "TUNED", "Trained", "form_model", "short_experiment", "train_short"]

BINARY_EPOCHS = 100
"""Binary forms are best where their learning rate has fallen to 0."""
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
    "fp32": FLOATS,
    "bin": _BINARY.model_copy(update={"hidden_norm": "batch"}),
    "full": _BINARY,
}
"""Enough to tell plans apart on a citation graph within seconds; all take features as they are."""
FLOATS_FORM, TUNED = "fp32", "bin"
FAMILIES = {"fp32": PYG, "full": BI_GCN}
FLOATS_BY, TRAINED_BY, CUT_AT = 0.5, 0.7, 0.8
"""Part of the time left at first that may be used up behind fp32, which losses count from, and
behind the form to tune; and where a training that takes longer than expected is cut short."""
BASELINES_BY = 0.6
"""The same behind a form that is a baseline alone."""
MORE_BY = 0.9
"""Part of the search's time that it and trainings behind it may use up."""
LEAST_EPOCHS = 10
"""Epochs that are trained in any case, as long as there is any time."""
SHORTEST = 1e-9
"""Seconds that an epoch takes at least."""
MORE_SEEDS = 4
"""Seeds that time left over is used for: the best of very many is good on validation alone."""


@dataclass(frozen=True)
class Trained:
    """Models of one data set.

    Attributes:
        model: the one to tune.
        baselines: the others by family of baselines; without those that there was no time for.
        shortened: epochs trained and epochs wanted, by form, where time was too short for all.
        more: trains the form to tune better while the budget lasts: the epochs that there was no
            time for, then other seeds. Gives a title and a model for each.
    """

    model: nn.Module
    baselines: dict[str, nn.Module]
    shortened: dict[str, tuple[int, int]]
    more: Callable[[], Iterator[tuple[str, nn.Module]]]


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
        ConfigError: an unknown model, or a number out of range.
    """
    known = get_args(ExperimentConfig.model_fields["model"].annotation)
    if model not in known:
        raise ConfigError(f"model must be one of {list(known)}, got {model!r}")
    forms = SHORT_FORMS
    if epochs is not None:
        forms = {name: r.model_copy(update={"epochs": epochs}) for name, r in forms.items()}
    content: dict[str, Any] = {
        "name": "tune",
        "dataset": {"name": dataset},
        "model": model,
        "hidden_channels": hidden_channels,
        "seeds": 1,
        "forms": {name: recipe.model_dump() for name, recipe in forms.items()},
    }
    return check_config(content, ExperimentConfig, "tune")


def form_model(config: ExperimentConfig, form: str, data: Data) -> nn.Module:
    """An untrained model of a form of :func:`short_experiment`: binary ones as binarize() gives."""
    if not config.is_binary(form):
        return build_model(config, form, data)
    recipe = config.forms[form].model_copy(update={"precision": "fp32"})
    floats = config.model_copy(update={"forms": {**config.forms, form: recipe}})
    return binarize(build_model(floats, form, data), config.precision(form))


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

    fp32 comes first. Where the budget is too short, the form to tune has as many epochs as fit,
    with the learning rate falling to 0 over these, and a form that is a baseline alone is left out.

    Args:
        config: of :func:`short_experiment`.
        data: the graph.
        store: finished trainings.
        device: where to train.
        seed: of all random generators.
        budget: a part of it may be used up.
        on_epochs: called with the number of epochs done since the last call.

    Raises:
        TrainingError: a training diverged.
        OSError: the store cannot be written.
    """
    return _Short(config, data, store, device, seed, budget).train(on_epochs)


@dataclass
class _Short:
    """The trainings of one command."""

    config: ExperimentConfig
    data: Data
    store: RunStore
    device: torch.device
    seed: int
    budget: Budget
    logits: dict[str, Tensor] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    epoch_seconds: float = 0.0

    def train(self, on_epochs: Callable[[int], Any]) -> Trained:
        config = self.config
        self.budget.begin_stage()  # whatever starting took
        models: dict[str, nn.Module] = {}
        shortened: dict[str, tuple[int, int]] = {}
        for form, recipe in config.forms.items():
            count = Count(recipe.epochs, on_epochs)
            kept = self.store.load(form, self.seed)
            if kept is None or (form == FLOATS_FORM and is_cut(kept[0], recipe)):
                if form not in (FLOATS_FORM, TUNED) and not self._fits(recipe.epochs, BASELINES_BY):
                    shortened[form] = 0, recipe.epochs
                    count.finish()
                    continue
                self.store.save(*self._run(form, count))
                kept = self.store.load(form, self.seed)
                assert kept is not None, "it was just saved"
            count.finish()
            run, state = kept
            if is_cut(run, recipe):
                shortened[form] = run.epochs, recipe.epochs
            if form == TUNED and not self.epoch_seconds:
                self.epoch_seconds = run.seconds / run.epochs
            self.runs[form], models[form] = run, self._model(form, state)
            if form == FLOATS_FORM:
                task = make_task(config, form, self.data, self.device)
                with torch.no_grad():
                    self.logits[form] = models[form](task.x, task.evaluation_graph)
        baselines = {family: models[form] for form, family in FAMILIES.items() if form in models}
        return Trained(models[TUNED], baselines, shortened, partial(self.more, models[TUNED]))

    def more(self, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        wanted, done = self.config.forms[TUNED].epochs, self.runs[TUNED].epochs
        if math.isinf(self.budget.seconds):
            return
        state = model.state_dict()
        while done < wanted and self._fits(1, MORE_BY):
            left = self.budget.until(MORE_BY) - self.budget.spent
            epochs = min(wanted - done, max(1, int(left / max(self.epoch_seconds, SHORTEST))))
            trained = self._trained(TUNED, epochs, self.seed, self._pace(epochs), state)
            done, state = done + trained.epochs, trained.state
            yield f"trained for {done} epochs", self._model(TUNED, state)
        for seed in range(self.seed + 1, self.seed + 1 + MORE_SEEDS):
            if not self._fits(wanted, MORE_BY):
                return
            trained = self._trained(TUNED, wanted, seed, self._pace(wanted))
            yield f"seed {seed}", self._model(TUNED, trained.state)

    def _pace(self, epochs: int) -> Pace:
        return Pace(self.budget, self.device, epochs, None, MORE_BY)

    def _fits(self, epochs: int, share: float) -> bool:
        """Whether so many epochs of the form to tune are expected to end by a share."""
        return self.budget.spent + epochs * self.epoch_seconds < self.budget.until(share)

    def _run(self, form: str, count: Count) -> tuple[Run, dict[str, Tensor]]:
        """Train a form for all its epochs, or as many as fit."""
        budget, wanted = self.budget, self.config.forms[form].epochs
        by, cut = (TRAINED_BY, CUT_AT) if form == TUNED else (None, FLOATS_BY)
        if form not in (FLOATS_FORM, TUNED):
            cut = CUT_AT
        pace = Pace(budget, self.device, wanted, by, cut, count)
        trained = self._trained(form, wanted, self.seed, pace)
        if pace.is_late and by is not None:
            fitting = int((budget.until(by) - budget.spent) / max(pace.epoch_seconds, SHORTEST))
            epochs = min(wanted, max(LEAST_EPOCHS, fitting))
            pace = Pace(budget, self.device, epochs, None, cut, count)
            trained = self._trained(form, epochs, self.seed, pace)
        if form == TUNED:
            self.epoch_seconds = pace.epoch_seconds
        run = Run(
            form, self.seed, trained.test_score, trained.val_score, trained.val_loss,
            trained.epoch, trained.epochs, trained.seconds, machine_name(self.device),
        )  # fmt: skip
        return run, trained.state

    def _trained(
        self,
        form: str,
        epochs: int,
        seed: int,
        pace: Pace,
        initial: Mapping[str, Tensor] | None = None,
    ) -> TrainedModel:
        config = self.config
        recipe = config.forms[form].model_copy(update={"epochs": epochs})
        seed_everything(seed)
        return train_model(
            form_model(config, form, self.data).to(self.device),
            make_task(config, form, self.data, self.device),
            recipe,
            initial=initial,
            teachers=[self.logits[name] for name in recipe.teaching()],
            should_stop=pace,
        )

    def _model(self, form: str, state: Mapping[str, Tensor]) -> nn.Module:
        model = form_model(self.config, form, self.data)
        load_state(model, state, f"state of form {form!r}")
        return model.to(self.device).eval()
