"""The stages of a student's training: what is binary in each, from one to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bitgnn.distillation.fitting import fit
from bitgnn.distillation.float_weights import binary_layers, use_float_weights
from bitgnn.distillation.recipe import DistillRecipe
from bitgnn.distillation.session import Fit
from bitgnn.nn.multistage import (
    BERT_LEVELS,
    activation_quantizers,
    enter_level,
    initialize_scales,
    plan_stages,
    set_level,
)

__all__ = ["Stage", "Taught", "run_stages", "stages_of"]

LAST = "student"
"""Title of the last stage, of which there is always one."""


@dataclass(frozen=True)
class Stage:
    """Part of a training with one form of the student.

    Attributes:
        title: of its files and its progress bar.
        recipe: of this part alone.
        enter: gives the student its form, at the best state of the stage before.
    """

    title: str
    recipe: DistillRecipe
    enter: Callable[[], Any] = lambda: None


def stages_of(
    student: nn.Module, recipe: DistillRecipe, calibrate: Callable[[], Any]
) -> list[Stage]:
    """The stages of a student's scheme.

    Binary convolutions and linear layers: signs of activations with float weights for half of the
    epochs, then signs of both (Martinez et al., "Training Binary Neural Networks with
    Real-to-Binary Convolutions", ICLR 2020; Liu et al., "ReActNet", ECCV 2020). BWTA: activations
    of 4, 3, 2 and 1 levels, half of the epochs at 1. What else there is: one stage.

    Args:
        student: in its last form.
        recipe: of all stages together.
        calibrate: sends data through the student.
    """
    quantizers = {
        name: quantizer
        for name, quantizer in activation_quantizers(student).items()
        if quantizer.level is not None
    }
    if any(quantizer.kind != "sign" for quantizer in quantizers.values()):
        return _levels(student, recipe, calibrate, list(quantizers))
    early = recipe.epochs // 2
    if not binary_layers(student) or early == 0:
        return [Stage(LAST, recipe)]
    return [
        Stage(
            f"{LAST}-float-weights",
            _shortened(recipe, early),
            lambda: use_float_weights(student, True),
        ),
        Stage(
            LAST,
            _shortened(recipe, recipe.epochs - early),
            lambda: use_float_weights(student, False),
        ),
    ]


def _levels(
    student: nn.Module, recipe: DistillRecipe, calibrate: Callable[[], Any], names: list[str]
) -> list[Stage]:
    """Stages of falling levels of the named quantisers."""
    plan = plan_stages(BERT_LEVELS, recipe.epochs)

    def enter(number: int) -> None:
        level = plan[number].level
        if number:
            enter_level(student, level, calibrate, only=names)
        else:
            set_level(student, level, names)
            initialize_scales(student, calibrate, names)

    def stage(number: int) -> Stage:
        is_last = number + 1 == len(plan)
        title = LAST if is_last else f"{LAST}-level-{plan[number].level}"
        return Stage(title, _shortened(recipe, plan[number].epochs), lambda: enter(number))

    return [stage(number) for number in range(len(plan))]


def _shortened(recipe: DistillRecipe, epochs: int) -> DistillRecipe:
    return recipe.model_copy(update={"epochs": epochs})


@dataclass(frozen=True)
class Taught:
    """What the stages left behind.

    Attributes:
        history: a row an epoch, those of all stages in a row.
        seconds: of all stages.
        interrupted: whether Ctrl-C ended the last one early.
        ended: why each stage ended, by its title.
    """

    history: list[dict[str, float]]
    seconds: float
    interrupted: bool
    ended: dict[str, str]


def run_stages(
    student: nn.Module,
    stages: list[Stage],
    problem: Any,
    ask: Callable[[Any], Tensor] | None,
    identity: dict[str, Any],
    *,
    budget: float | None,
    folder: Path | None,
) -> Taught:
    """Train the student stage by stage, each from the best epoch of the one before.

    Args:
        student: trained in place.
        stages: in order.
        problem: data and losses.
        ask: gives what the teacher wants of a part's rows; None trains on labels alone.
        identity: plain values that checkpoints must agree in.
        budget: seconds of all stages, shared by their epochs.
        folder: for checkpoints and logs; None for neither.

    Raises:
        KeyboardInterrupt: Ctrl-C before the last stage had an epoch; the student is not binary yet.
    """
    history: list[dict[str, float]] = []
    ended: dict[str, str] = {}
    seconds = 0.0
    interrupted = False
    for number, stage in enumerate(stages):
        stage.enter()
        left = sum(later.recipe.epochs for later in stages[number:])
        share = None if budget is None else (budget - seconds) * stage.recipe.epochs / left
        session = Fit(student, stage.recipe, {**identity, "part": stage.title})
        interrupted = fit(
            session, problem, ask, budget=share, folder=folder, title=stage.title,
            is_last=number + 1 == len(stages),
        )  # fmt: skip
        ended[stage.title] = session.ended
        seconds += session.seconds
        for row in session.rows():
            history.append({**row, "epoch": len(history), "stage": number})
    return Taught(history, seconds, interrupted, ended)
