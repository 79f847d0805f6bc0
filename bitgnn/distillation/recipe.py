"""How teacher and student are trained: fields of a recipe, and the rules that they follow from."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from bitgnn.distillation.problems import Problem

__all__ = ["LEAST_EPOCHS", "DistillRecipe", "dropout_for", "recipe_for"]

WHOLE_EPOCHS = 200
STEPS, LEAST_EPOCHS = 2000, 20
MUCH_OVERFIT = 0.05
"""Overfitting from which on a student has all of the model's dropout."""
MANY_LABELS = 4000
"""Labelled rows from which on a student has ever less of it."""


class DistillRecipe(BaseModel):
    """How teacher and student are trained, by Adam.

    Attributes:
        epochs: passes over the training data.
        learning_rate: the highest one.
        schedule: learning rate over the epochs: constant, or a cosine falling to 0. It is a
            function of the epoch, so that going on needs no scheduler's state.
        weight_decay: of the teacher; students have none on latent weights.
        teacher_weight: ``w`` in ``(1 - w) labels + w teacher``.
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
    weight_decay: float = Field(0.0, ge=0)
    teacher_weight: float = Field(0.0, ge=0, le=1)
    sharpen: float = Field(2.0, gt=0)
    smooth: bool = True
    dropout: float = Field(1.0, ge=0)
    patience: float | None = Field(1 / 3, gt=0, le=1)

    def rate(self, epoch: float) -> float:
        """Learning rate ``(1 + cos(pi epoch / epochs)) / 2`` of the highest, or the constant one.

        Args:
            epoch: from 0; parts of one are where time, not epochs, ends the training.
        """
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2


def dropout_for(overfit: float, labelled: int) -> float:
    """What is left of the model's dropout for a student.

    A teacher that scores as well on rows it has not seen does not overfit, nor will a binary
    student, which dropout would only cost accuracy. The more rows are labelled, the less a
    student of few bits can learn by heart.

    Args:
        overfit: the teacher's score of training rows less that of validation rows.
        labelled: training rows.
    """
    return min(1.0, max(0.0, overfit / MUCH_OVERFIT), MANY_LABELS / labelled)


def recipe_for(problem: Problem, epochs: int | None) -> tuple[DistillRecipe, DistillRecipe]:
    """The recipes of teacher and student; what they depend on is a property of the data.

    Whole graphs have 200 epochs, batches about 2 000 steps; each kind of problem says itself
    what is special about it.

    Args:
        problem: the data.
        epochs: of both; None for the rule.
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
