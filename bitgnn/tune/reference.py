"""The fp32 model that losses of accuracy are counted from: given, or trained on the same data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from bitgnn.convert.letters import own_letters
from bitgnn.train.loop import TrainedModel, TrainingError, train_model
from bitgnn.train.randomness import seeded
from bitgnn.train.recipe import Recipe
from bitgnn.tune.baselines import PYG, in_floats
from bitgnn.tune.budget import Budget, adding_up
from bitgnn.tune.finetune import node_task
from bitgnn.tune.objective import Constraint
from bitgnn.tune.workload import Workload

__all__ = ["AS_GIVEN", "FLOATS", "Given", "Reference", "find_reference", "is_cut"]

Given = Literal["given"]
AS_GIVEN = "the given model"
FLOATS = Recipe(
    epochs=60, learning_rate=0.01, weight_decay=5e-4, dropout=0.5, input_norm=False, patience=10
)
"""Ends where 10 epochs bring no lower validation loss; the best ones may come early."""
TRAINED_BY = 0.4
"""Part of the budget that training the model may use up."""


@dataclass(frozen=True)
class Reference:
    """What losses of accuracy are counted from.

    Attributes:
        model: in floats; None for the score of the model that is tuned.
        name: what to call it.
        doubt: why its score is lower than it should be; None if it is not.
    """

    model: nn.Module | None
    name: str
    doubt: str | None = None


def find_reference(
    workload: Workload,
    reference: nn.Module | Given | None,
    trained: Mapping[str, nn.Module],
    limits: Sequence[Constraint],
    budget: Budget,
    seed: int,
    on_epochs: Callable[[int, int], Any] = lambda done, total: None,
) -> Reference:
    """The reference that was given, or one trained for it.

    Args:
        workload: model and data.
        reference: a model in floats; ``"given"`` for the model that is tuned, whatever its letters;
            None for the first there is of: ``trained``'s model in floats, the model that is tuned
            if it is in floats, and one of its architecture trained on the training nodes.
        trained: models by family of baselines.
        limits: without one of accuracy the model that is tuned does where nothing can be trained.
        budget: a part of it is for the training.
        seed: of the training.
        on_epochs: called with the epochs done and all of them.

    Raises:
        TypeError: ``reference`` is neither a module nor ``"given"``.
        ValueError: ``reference`` has binary layers, or there is no training mask for a training
            that is needed.
        TrainingError: the training diverged.
    """
    if isinstance(reference, str) and reference == "given":
        return Reference(None, AS_GIVEN)
    if reference is not None:
        if not isinstance(reference, nn.Module):
            raise TypeError(f"tune: reference must be an fp32 model or 'given', got {reference!r}")
        if not _is_float(reference):
            raise ValueError(
                "tune: reference must be an fp32 model, got one with the letters "
                f"{own_letters(reference)}"
            )
        return Reference(reference, "the fp32 model given")
    if PYG in trained:
        return Reference(trained[PYG], "fp32")
    if _is_float(workload.model):
        return Reference(workload.model, AS_GIVEN)
    if not workload.is_trainable:
        if not any(limit.what == "accuracy drop" for limit in limits):
            return Reference(None, AS_GIVEN)
        raise ValueError(
            "tune: data has no training mask (train_mask) to train the fp32 model on that the "
            "accuracy drop is counted from; give that model as reference=, or reference='given' "
            "to count from the model as it is"
        )
    return _trained(workload, budget, seed, on_epochs)


def is_cut(trained: Any, recipe: Recipe) -> bool:
    """Whether a training ended before its recipe wanted it to.

    Args:
        trained: something with ``epoch``, the one chosen, and ``epochs``, those trained.
        recipe: of the training.
    """
    waited = trained.epochs - 1 - trained.epoch
    is_patient = recipe.patience is None or waited < recipe.patience
    return trained.epochs < recipe.epochs and is_patient


def _is_float(model: nn.Module) -> bool:
    return not set("".join(own_letters(model).values())) & set("BT")


def _trained(
    workload: Workload, budget: Budget, seed: int, on_epochs: Callable[[int, int], Any]
) -> Reference:
    """The architecture in PyG's arithmetic, trained from new weights."""
    try:
        with seeded(seed, workload.device):
            model = copy.deepcopy(in_floats(workload.model)).to(workload.device)
            for module in model.modules():
                reset = getattr(module, "reset_parameters", None)
                if callable(reset):
                    reset()
            trained: TrainedModel = train_model(
                model,
                node_task(workload),
                FLOATS,
                on_epochs=adding_up(on_epochs, FLOATS.epochs),
                should_stop=lambda: not budget.fits("epoch", TRAINED_BY),
            )
    except TrainingError as error:
        raise TrainingError(
            f"tune: the fp32 model that the accuracy drop is counted from cannot be trained "
            f"({error}); give one as reference="
        ) from error
    doubt = None
    if is_cut(trained, FLOATS):
        doubt = f"the budget left time for {trained.epochs} of {FLOATS.epochs} epochs of fp32"
    return Reference(model.eval(), "fp32 trained on the same data", doubt)
