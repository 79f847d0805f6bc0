"""Training of teacher and student: the recipe, its rules, and the teacher's targets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from bitgnn.distillation.problems import Part, Problem, Results
from bitgnn.distillation.students import fresh

WHOLE_EPOCHS = 200
STEPS, LEAST_EPOCHS = 2000, 20
MUCH_OVERFIT = 0.05
"""Overfitting from which on a student has all of the model's dropout."""
MANY_LABELS = 4000
"""Labelled rows from which on a student has ever less of it."""
COPIES, EVIDENCE = 20, 5.0
"""Fresh copies that a model is compared with, and deviations by which it must be better."""
LEAST = 1e-12


class DistillRecipe(BaseModel):
    """Recipe by which teacher and student are trained, with Adam.

    Attributes:
        epochs: passes over the training data.
        learning_rate: the highest one.
        schedule: learning rate over the epochs: constant, or a cosine falling to 0. It is a
            function of the epoch, so that going on needs no scheduler's state.
        warm_up: share of the epochs, of each stage, in which the rate rises to its highest.
        scale_rate: highest rate of the learnt scales of activations; None is ``learning_rate`` in
            units of their start.
        weight_decay: of the teacher; students have none on latent weights.
        teacher_weight: ``w`` in ``(1 - w) labels + w teacher``.
        hidden_weight: of the mean squared error of intermediate states, beside the teacher.
        attention_weight: of the distance of attention maps, beside the teacher, see
            :class:`~bitgnn.distillation.inside.Inside`.
        sharpen: exponent of the teacher's probabilities.
        smooth: smooth them over the graph where validation nodes gain.
        dropout: factor of the model's own dropout probabilities in training.
        patience: share of the epochs, but at least 20, without a better one after which training
            at a constant rate stops; None trains them all. Falling rates have the best ones last.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: int = Field(gt=0)
    learning_rate: float = Field(gt=0)
    schedule: Literal["constant", "cosine"] = "constant"
    warm_up: float = Field(0.0, ge=0, lt=1)
    scale_rate: float | None = Field(None, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    teacher_weight: float = Field(0.0, ge=0, le=1)
    hidden_weight: float = Field(0.0, ge=0)
    attention_weight: float = Field(0.0, ge=0)
    sharpen: float = Field(2.0, gt=0)
    smooth: bool = True
    dropout: float = Field(1.0, ge=0)
    patience: float | None = Field(1 / 3, gt=0, le=1)

    def rate(self, epoch: float) -> float:
        """Learning rate ``(1 + cos(pi e / n)) / 2`` of the highest, or the constant one.

        ``e`` of ``n`` epochs are those behind the warm-up of w, whose rates are
        ``(epoch + 1) / (w + 1)``. Epochs count from 0; there are parts of one where time, not
        epochs, ends the training.
        """
        rising = self.warm_up * self.epochs
        if epoch < rising:
            return self.learning_rate * (epoch + 1) / (rising + 1)
        if self.schedule == "constant":
            return self.learning_rate
        share = (epoch - rising) / (self.epochs - rising)
        return self.learning_rate * (1 + math.cos(math.pi * share)) / 2


def dropout_for(overfit: float, labelled: int) -> float:
    """A student's share of the model's dropout.

    A teacher that scores as well on rows it has not seen does not overfit, nor will a binary
    student, which dropout would only cost accuracy. The more rows are labelled, the less a
    student of few bits can learn by heart.
    """
    return min(1.0, max(0.0, overfit / MUCH_OVERFIT), MANY_LABELS / labelled)


def recipe_for(problem: Problem, epochs: int | None) -> tuple[DistillRecipe, DistillRecipe]:
    """The recipes of teacher and student, derived from properties of the data.

    Whole graphs have 200 epochs, batches about 2 000 steps; each kind of problem says itself
    what is special about it.
    """
    if epochs is None:
        whole = min(WHOLE_EPOCHS, max(LEAST_EPOCHS, math.ceil(STEPS / problem.steps)))
        epochs = WHOLE_EPOCHS if problem.steps == 1 else whole
    # Adam and weight decay of PyG's tutorials (Kipf and Welling 2017).
    teacher = {"learning_rate": 0.01, "weight_decay": 5e-4, **problem.teacher_options}
    student = {
        "learning_rate": 0.01,
        "schedule": "cosine",
        "teacher_weight": 0.5,
        **problem.student_options,
    }
    return DistillRecipe(epochs=epochs, **teacher), DistillRecipe(epochs=epochs, **student)


class Standing(NamedTuple):
    """A model's validation metric and loss.

    ``chance`` is the score of a model that knows nothing of its input, such as the commonest class,
    and ``constant`` the loss that the best constant scores have.
    """

    score: float
    loss: float
    chance: float
    constant: float
    rows: int


@torch.no_grad()
def results_of(problem: Problem, model: nn.Module) -> Results:
    """Scores and labels by part, in evaluation."""
    return problem.results(model.eval())


def standing(problem: Problem, model: nn.Module) -> Standing:
    """Measure a model on the validation rows."""
    objective = problem.objective
    scores, y = results_of(problem, model)["val"]
    return Standing(
        float(objective.score(scores, y)),
        float(objective.labels(scores, y)),
        objective.chance(y),
        objective.constant(y),
        y.size(0),
    )


def judged(problem: Problem, model: nn.Module, found: Standing) -> tuple[bool, str]:
    """Judge from copies with fresh weights if a model is trained, and say why.

    A trained one beats chance, or the loss of constant scores; and its score and the logarithm of
    its loss are better than the copies' means by five standard deviations, both together: fresh
    weights can be lucky in either. A deviation is that of the copies and, since rows are few, of a
    mean of so many.
    """
    copies = [standing(problem, fresh(model)) for _ in range(COPIES)]
    few = 0.25 / found.rows
    scores = torch.tensor([copy.score for copy in copies], dtype=torch.float64)
    losses = torch.tensor([copy.loss for copy in copies], dtype=torch.float64)
    logs = losses.clamp(min=LEAST).log()
    gains = (
        found.score - float(scores.mean()),
        float(logs.mean()) - math.log(max(found.loss, LEAST)),
    )
    evidence = sum(
        max(gain / math.sqrt(float(values.var()) + few), 0)
        for gain, values in zip(gains, (scores, logs), strict=True)
    )
    knows = found.score > found.chance or found.loss < found.constant
    is_trained = knows and evidence >= EVIDENCE
    return is_trained, (
        f"{'trained' if is_trained else 'untrained'}, by {problem.objective.metric} and loss on "
        f"{found.rows} validation rows: its {found.score:.3f} and {found.loss:.3f}, with fresh "
        f"weights {float(scores.mean()):.3f} ± {float(scores.std()):.3f} and "
        f"{float(losses.mean()):.3f} ± {float(losses.std()):.3f}, of constants "
        f"{found.chance:.3f} and {found.constant:.3f}"
    )


@torch.no_grad()
def asking(
    problem: Problem, teacher: nn.Module, recipe: DistillRecipe
) -> tuple[Callable[[Part], Tensor], str]:
    """The teacher's targets for a part, and the smoothing applied to them."""
    wanted, smoothing = problem.wanted(teacher, recipe.sharpen, recipe.smooth)

    @torch.no_grad()
    def ask(part: Part) -> Tensor:
        if wanted is not None and part.rows is None:
            return wanted
        if wanted is not None and part.nodes is not None:
            return wanted[part.nodes]
        scores = problem.scores(teacher, part)
        rows = scores if part.rows is None else scores[part.rows]
        return problem.objective.wanted(rows, recipe.sharpen)

    return ask, smoothing
