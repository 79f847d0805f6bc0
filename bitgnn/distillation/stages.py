"""The stages of a student's training, which make more of it binary step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from bitgnn.distillation.batches import Batched
from bitgnn.distillation.calling import call
from bitgnn.distillation.fitting import Ask, fit
from bitgnn.distillation.inside import Inside
from bitgnn.distillation.problems import Problem
from bitgnn.distillation.recipe import DistillRecipe
from bitgnn.distillation.session import Fit
from bitgnn.nn import BinaryConv2d, BinaryLinear
from bitgnn.nn.multistage import (
    activation_quantizers,
    enter_level,
    initialize_scales,
    plan_stages,
    set_level,
)
from bitgnn.quantize import binary_sign, row_scale

LAST = "student"
"""Title of the last stage, of which there is always one."""
BinaryLayer = BinaryConv2d | BinaryLinear


class FloatWeightConv2d(BinaryConv2d):
    """:class:`~bitgnn.nn.BinaryConv2d` with float weights; its input is binarised."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to ``[N, C, H, W]`` or ``[C, H, W]``."""
        x, padding = self._padded(_binarised(self, input))
        numbers: Any = self.stride, padding, self.dilation, self.groups
        return functional.conv2d(x, _weight(self), self.bias, *numbers)


class FloatWeightLinear(BinaryLinear):
    """:class:`~bitgnn.nn.BinaryLinear` with float weights; its input is binarised."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to ``[*, in_features]``."""
        return functional.linear(_binarised(self, input), _weight(self), self.bias)


FLOAT_WEIGHTS: dict[type[nn.Module], type[nn.Module]] = {
    BinaryConv2d: FloatWeightConv2d,
    BinaryLinear: FloatWeightLinear,
}
BINARY_WEIGHTS = {floats: binary for binary, floats in FLOAT_WEIGHTS.items()}


def _binarised(layer: BinaryLayer, x: Tensor) -> Tensor:
    """The input's signs; of a first layer the input itself."""
    if layer.input_step is None:
        return binary_sign(x, layer.surrogate)
    return x if x.is_floating_point() else x.to(layer.weight.dtype)


def _weight(layer: BinaryLayer) -> Tensor:
    """Weights scaled to the magnitude that their signs have in the binary layer."""
    weight = layer.weight
    if layer.scale:
        return weight
    scale = row_scale(weight.flatten(1)).clamp(min=1e-12)
    return weight / scale.view(-1, *(1 for _ in weight.shape[1:]))


def use_float_weights(model: nn.Module, wanted: bool) -> None:
    """Let binary layers multiply by float weights, or by signs again.

    Layers change class where they stand, so that parameters, optimizers and hooks stay theirs.
    """
    new = FLOAT_WEIGHTS if wanted else BINARY_WEIGHTS
    for layer in model.modules():
        layer.__class__ = new.get(type(layer), type(layer))


@dataclass(frozen=True)
class Stage:
    """Part of a training with one form of the student, and a recipe of its own.

    ``title`` is that of its files and its progress bar; ``enter`` gives the student its form, at
    the best state of the stage before.
    """

    title: str
    recipe: DistillRecipe
    enter: Callable[[], Any] = lambda: None


def stages_of(student: nn.Module, recipe: DistillRecipe, problem: Batched) -> list[Stage]:
    """The stages of a student's scheme; ``recipe`` is that of the whole training.

    Binary convolutions and linear layers: signs of activations with float weights for half of the
    epochs, then signs of both (Martinez et al., "Training Binary Neural Networks with
    Real-to-Binary Convolutions", ICLR 2020; Liu et al., "ReActNet", ECCV 2020). BWTA: activations
    of 4, 3, 2 and 1 levels, for language models 9, 7, 5, 3 and 1, half of the epochs at 1. What
    else there is: one stage.
    """
    found = activation_quantizers(student)
    names = [name for name, quantizer in found.items() if quantizer.level is not None]
    if any(found[name].kind != "sign" for name in names):
        return _levels(student, recipe, problem, names)
    early = recipe.epochs // 2
    kinds = {*FLOAT_WEIGHTS, *BINARY_WEIGHTS}
    if early == 0 or not any(type(layer) in kinds for layer in student.modules()):
        return [Stage(LAST, recipe)]
    parts = ((f"{LAST}-float-weights", early, True), (LAST, recipe.epochs - early, False))
    return [
        Stage(title, _shortened(recipe, epochs), partial(use_float_weights, student, floats))
        for title, epochs, floats in parts
    ]


def _levels(
    student: nn.Module, recipe: DistillRecipe, problem: Batched, names: list[str]
) -> list[Stage]:
    """Stages of falling levels of the named quantisers."""
    plan = plan_stages(problem.levels, recipe.epochs)

    def calibrate() -> None:
        call(student.eval(), problem.example)

    def enter(number: int) -> None:
        level = plan[number].level
        if number:
            enter_level(student, level, calibrate, only=names)
        else:
            set_level(student, level, names)
            initialize_scales(student, calibrate, names)

    titles = [*(f"{LAST}-level-{stage.level}" for stage in plan[:-1]), LAST]
    return [
        Stage(title, _shortened(recipe, plan[number].epochs), partial(enter, number))
        for number, title in enumerate(titles)
    ]


def _shortened(recipe: DistillRecipe, epochs: int) -> DistillRecipe:
    return recipe.model_copy(update={"epochs": epochs})


@dataclass(frozen=True)
class Taught:
    """Result of all stages: history, seconds, and the reason why each ended.

    ``interrupted`` says whether Ctrl-C ended the last one early.
    """

    history: list[dict[str, float]]
    seconds: float
    interrupted: bool
    ended: dict[str, str]


def run_stages(
    student: nn.Module,
    stages: list[Stage],
    problem: Problem,
    ask: Ask,
    identity: dict[str, Any],
    *,
    budget: float | None,
    folder: Path | None,
    inside: Inside | None = None,
) -> Taught:
    """Train the student stage by stage, each from the best epoch of the one before.

    Checkpoints, in ``folder`` where there is one, must agree in the plain values of ``identity``.
    ``budget`` is the seconds of all stages, shared by their epochs. Ctrl-C is raised before the
    last stage had an epoch: the student is not binary yet.
    """
    history: list[dict[str, float]] = []
    ended: dict[str, str] = {}
    seconds = 0.0
    interrupted = False
    for number, stage in enumerate(stages):
        stage.enter()
        left = sum(later.recipe.epochs for later in stages[number:])
        share = None if budget is None else (budget - seconds) * stage.recipe.epochs / left
        session = Fit(student, stage.recipe, {**identity, "part": stage.title}, inside)
        interrupted = fit(
            session, problem, ask, budget=share, folder=folder, title=stage.title,
            is_last=number + 1 == len(stages),
        )  # fmt: skip
        ended[stage.title] = session.ended
        seconds += session.seconds
        for row in session.rows():
            history.append({**row, "epoch": len(history), "stage": number})
    return Taught(history, seconds, interrupted, ended)
