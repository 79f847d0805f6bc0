"""Whether a teacher knows anything, and what it asks of its student."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt

import torch
from torch import Tensor, nn

from bitgnn.distillation.problems import Part, Problem
from bitgnn.distillation.recipe import DistillRecipe
from bitgnn.distillation.students import fresh

__all__ = ["Standing", "asking", "judged", "results_of", "standing"]

COPIES, EVIDENCE = 20, 5.0
"""Fresh copies that a model is compared with, and deviations by which it must be better."""
LEAST = 1e-12


@dataclass(frozen=True)
class Standing:
    """How a model does on validation rows.

    Attributes:
        score: the objective's metric.
        loss: of labels.
        chance: score of a model that knows nothing of its input, such as the commonest class.
        constant: loss that the best constant scores have.
        rows: number of them.
    """

    score: float
    loss: float
    chance: float
    constant: float
    rows: int


@torch.no_grad()
def results_of(problem: Problem, model: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """Scores and labels by part, in evaluation."""
    return problem.results(model.eval())


def standing(problem: Problem, model: nn.Module) -> Standing:
    """How a model does on validation rows."""
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
    """Whether a model is trained, by its standing and that of copies with fresh weights, and why.

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
    gains = found.score - float(scores.mean()), float(logs.mean()) - log(max(found.loss, LEAST))
    evidence = sum(
        max(gain / sqrt(float(values.var()) + few), 0)
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
    """What the teacher wants of a part, and how it was smoothed."""
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
