"""Whether a teacher knows anything, and what it asks of its student."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bitgnn.distillation.fitting import DistillRecipe
from bitgnn.distillation.problems import Part, Problem
from bitgnn.distillation.students import fresh

__all__ = ["asking", "results_of", "standing", "untrained"]

FRESH_COPIES, DEVIATIONS = 5, 3
CLEARLY = 0.97
"""Fresh weights give nearly constant scores, whose loss may fall short of a constant's by luck."""


@torch.no_grad()
def results_of(problem: Problem, model: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """Scores and labels by part, in evaluation."""
    return problem.results(model.eval())


def standing(problem: Problem, model: nn.Module) -> tuple[float, bool]:
    """The score on validation rows, and whether score and loss there are better than constants'."""
    objective = problem.objective
    scores, y = results_of(problem, model)["val"]
    score, loss = (float(found(scores, y)) for found in (objective.score, objective.labels))
    return score, score > objective.chance(y) and loss < CLEARLY * objective.constant(y)


def untrained(model: nn.Module, problem: Problem) -> float:
    """Score that a model without training hardly reaches: of chance, or copies with fresh weights.

    It decides about models whose loss is no lower than a constant's, as that of overfitted ones.
    """
    objective = problem.objective
    results = [results_of(problem, fresh(model))["val"] for _ in range(FRESH_COPIES)]
    scores = [float(objective.score(*result)) for result in results]
    reach = statistics.mean(scores) + DEVIATIONS * statistics.stdev(scores)
    return max(objective.chance(results[0][1]), reach)


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
