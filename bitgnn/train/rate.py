"""The learning rate as a function of the epoch, so that going on needs no scheduler's state."""

from __future__ import annotations

import math

from bitgnn.train.recipe import Recipe

__all__ = ["learning_rate"]


def learning_rate(recipe: Recipe, epoch: int) -> float:
    """Learning rate of an epoch.

    With ``warmup`` w it first rises as ``(epoch + 1) / w``; over the other epochs n it is constant
    or ``(1 + cos(pi k / n)) / 2`` of ``recipe.learning_rate`` at the k-th of them, from 0.

    Args:
        recipe: the recipe.
        epoch: from 0.
    """
    if epoch < recipe.warmup:
        return recipe.learning_rate * (epoch + 1) / recipe.warmup
    if recipe.schedule == "constant":
        return recipe.learning_rate
    progress = (epoch - recipe.warmup) / max(recipe.epochs - recipe.warmup, 1)
    return recipe.learning_rate * (1 + math.cos(math.pi * progress)) / 2
