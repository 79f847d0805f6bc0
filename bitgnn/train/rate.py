"""The learning rate as a function of the epoch, so that going on needs no scheduler's state."""

from __future__ import annotations

import math
from typing import Literal, Protocol

__all__ = ["Schedule", "learning_rate"]


class Schedule(Protocol):
    """The part of a recipe that the learning rate depends on."""

    @property
    def epochs(self) -> int:
        """Number of epochs."""

    @property
    def learning_rate(self) -> float:
        """The highest rate."""

    @property
    def schedule(self) -> Literal["constant", "cosine"]:
        """Course after the warm-up."""

    @property
    def warmup(self) -> int:
        """Epochs in which the rate rises first."""


def learning_rate(recipe: Schedule, epoch: int) -> float:
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
