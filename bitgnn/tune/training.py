"""Trains a model to tune in a short form: fp32, then its binary forms with fp32 as the teacher."""

from __future__ import annotations

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
from bitgnn.train.loop import train_model
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
    "full": _BINARY,
    "bin": _BINARY.model_copy(update={"hidden_norm": "batch"}),
}
"""Enough to tell plans apart on a citation graph within seconds; all take features as they are."""
TUNED = "bin"
FAMILIES = {"fp32": PYG, "full": BI_GCN}
TRAINED_BY = 0.5
"""Part of the budget that training may use up."""


@dataclass(frozen=True)
class Trained:
    """Models of one data set.

    Attributes:
        model: the one to tune.
        baselines: the others by family of baselines.
    """

    model: nn.Module
    baselines: dict[str, nn.Module]


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

    Args:
        config: of :func:`short_experiment`.
        data: the graph.
        store: finished trainings.
        device: where to train.
        seed: of all random generators.
        budget: half of it may be used up; a training that is cut short keeps its best epoch.
        on_epochs: called with the number of epochs done since the last call.

    Raises:
        TrainingError: a training diverged.
        OSError: the store cannot be written.
    """
    models: dict[str, nn.Module] = {}
    logits: dict[str, Tensor] = {}
    shares = len(config.forms)
    for number, (form, recipe) in enumerate(config.ordered_forms(), 1):
        kept = store.load(form, seed)
        if kept is None:
            until = TRAINED_BY * number / shares
            store.save(*_train(config, form, data, logits, device, seed, budget, until, on_epochs))
            kept = store.load(form, seed)
            assert kept is not None, "it was just saved"
        else:
            on_epochs(recipe.epochs)
        models[form] = restore_model(config, form, data, kept[1]).to(device)
        if any(form in other.teaching() for _, other in config.ordered_forms()):
            task = make_task(config, form, data, device)
            with torch.no_grad():
                logits[form] = models[form](task.x, task.evaluation_graph)
    return Trained(models[TUNED], {family: models[form] for form, family in FAMILIES.items()})


def _train(
    config: ExperimentConfig,
    form: str,
    data: Data,
    logits: dict[str, Tensor],
    device: torch.device,
    seed: int,
    budget: Budget,
    until: float,
    on_epochs: Callable[[int], Any],
) -> tuple[Run, dict[str, Tensor]]:
    recipe = config.forms[form]
    seed_everything(seed)
    trained = train_model(
        build_model(config, form, data).to(device),
        make_task(config, form, data, device),
        recipe,
        teachers=[logits[name] for name in recipe.teaching()],
        on_epochs=on_epochs,
        should_stop=lambda: not budget.fits("epoch", until),
    )
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_model()
    run = Run(
        form, seed, trained.test_score, trained.val_score, trained.val_loss, trained.epoch,
        trained.epochs, trained.seconds, f"{machine}, torch {torch.__version__}",
    )  # fmt: skip
    return run, trained.state
