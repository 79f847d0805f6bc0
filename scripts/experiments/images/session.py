"""One training on images in progress."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bitgnn.train.randomness import random_state, set_random_state
from experiments.images.recipe import ImageRecipe
from experiments.images.step import make_optimizer
from experiments.training.epoch_session import EpochSession

__all__ = ["COLUMNS", "ImageSession"]

COLUMNS = ("train_loss", "train_accuracy", "test_accuracy", "learning_rate", "seconds")


class ImageSession(EpochSession):
    """Everything of a training that changes from epoch to epoch.

    Args:
        model: trained in place.
        recipe: how.
    """

    columns = COLUMNS

    def __init__(self, model: nn.Module, recipe: ImageRecipe) -> None:
        super().__init__(model, recipe, make_optimizer(model, recipe))
        self.recipe = recipe

    def _random(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return random_state(self.device)

    def _set_random(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        set_random_state(tensors, values, self.device)
