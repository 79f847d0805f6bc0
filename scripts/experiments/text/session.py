"""One training on text in progress: stages, their ends, random numbers of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bitgnn.nn.multistage import EarlyStop, Stage, plan_stages
from bitgnn.nn.seeded_dropout import SeededDropout
from bitgnn.train.checkpoint import Checkpoint
from bitgnn.train.session import Session
from experiments.text.recipe import TextRecipe
from experiments.text.step import make_optimizer

__all__ = ["COLUMNS", "TextSession"]

COLUMNS = (
    "level", "train_loss", "validation_loss", "validation_score", "test_score", "learning_rate",
    "seconds",
)  # fmt: skip


class TextSession(Session):
    """Everything of a training that changes from epoch to epoch.

    Args:
        model: trained in place.
        recipe: how.
        seed: of dropout and of the order of sentences.

    Attributes:
        stages: of the schedule.
        stage: number of the one under way; as many as there are once all are done.
        stage_epoch: epochs finished in it.
        factors: by the level entered, what each scale was multiplied by at that transition.
    """

    columns = COLUMNS

    def __init__(self, model: nn.Module, recipe: TextRecipe, seed: int) -> None:
        super().__init__(model, recipe, make_optimizer(model, recipe))
        self.recipe, self.seed = recipe, seed
        self.generator = torch.Generator(self.device).manual_seed(seed)
        for module in model.modules():
            if isinstance(module, SeededDropout):
                module.generator = self.generator
        self.stages = plan_stages(recipe.levels, recipe.epochs)
        self.factors: dict[str, dict[str, float]] = {}
        self._enter(0)

    def _enter(self, stage: int) -> None:
        self.stage, self.stage_epoch = stage, 0
        # The last stage takes all of its epochs.
        last = stage + 1 >= len(self.stages)
        self._stop = EarlyStop(None if last else self.recipe.patience)

    @property
    def epochs_left(self) -> int:
        """Epochs to come if no further stage ends early."""
        later = sum(stage.epochs for stage in self.stages[self.stage :])
        return later - self.stage_epoch

    @property
    def current(self) -> Stage | None:
        """The stage under way, None behind the last."""
        return self.stages[self.stage] if self.stage < len(self.stages) else None

    def epoch_done(self, row: list[float]) -> int:
        """Take note of a finished epoch, and of the stage's end.

        Args:
            row: values of :data:`COLUMNS`.

        Returns:
            Epochs that the stage leaves undone because its loss did not fall.
        """
        stage = self.stages[self.stage]
        self.finished(row)
        self.stage_epoch += 1
        stopped = self._stop.observe(row[COLUMNS.index("validation_loss")])
        left = stage.epochs - self.stage_epoch
        if stopped or left == 0:
            self._enter(self.stage + 1)
        return left if stopped else 0

    def close(self) -> None:
        """Leave the model in evaluation mode, without random numbers of its own."""
        for module in self.model.eval().modules():
            if isinstance(module, SeededDropout):
                module.generator = None

    def _random(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {"dropout": self.generator.get_state()}, {}

    def _set_random(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        self.generator.set_state(tensors["dropout"])

    def _identity(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def _further_values(self) -> dict[str, Any]:
        return {"factors": self.factors}

    def _restore(self, found: Checkpoint) -> None:
        self.factors = found.values["factors"]
        rows = self.table().tolist()
        self.history = []
        self._enter(0)
        for row in rows:
            self.epoch_done(row)
