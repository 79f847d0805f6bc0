"""One training on sentences in progress: network, optimizer, history, saved and taken up again."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from bitgnn.nn.seeded_dropout import SeededDropout
from bitgnn.quantize.multistage import EarlyStop, Stage, plan_stages
from bitgnn.train.checkpoint import (
    Checkpoint,
    CheckpointError,
    flatten_optimizer,
    load_optimizer,
    load_state,
    read_checkpoint,
    write_checkpoint,
)
from bitgnn.train.text.recipe import TextRecipe
from bitgnn.train.text.step import make_optimizer

__all__ = ["COLUMNS", "TextSession"]

COLUMNS = (
    "level", "train_loss", "validation_loss", "validation_score", "test_score", "learning_rate",
    "seconds",
)  # fmt: skip
GROUPS = ("model", "optimizer", "random", "history")


class TextSession:
    """Everything of a training that changes from epoch to epoch.

    Args:
        model: trained in place.
        recipe: how.
        seed: of dropout and of the order of sentences.

    Attributes:
        stages: of the schedule.
        stage: number of the one under way; as many as there are once all are done.
        stage_epoch: epochs finished in it.
        history: one row of :data:`COLUMNS` an epoch finished; level 0 in full precision.
        factors: by the level entered, what each scale was multiplied by at that transition.
    """

    def __init__(self, model: nn.Module, recipe: TextRecipe, seed: int) -> None:
        self.model, self.recipe, self.seed = model, recipe, seed
        self.device = next(model.parameters()).device
        self.optimizer = make_optimizer(model, recipe)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        for module in model.modules():
            if isinstance(module, SeededDropout):
                module.generator = self.generator
        self.stages = plan_stages(recipe.levels, recipe.epochs)
        self.history: list[list[float]] = []
        self.factors: dict[str, dict[str, float]] = {}
        self._enter(0)

    def _enter(self, stage: int) -> None:
        self.stage, self.stage_epoch = stage, 0
        # The last stage takes all of its epochs.
        last = stage + 1 >= len(self.stages)
        self._stop = EarlyStop(None if last else self.recipe.patience)

    @property
    def epoch(self) -> int:
        """Epochs finished."""
        return len(self.history)

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
        self.history.append(row)
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

    def save(self, path: Path) -> None:
        """Write a checkpoint of the state between two epochs.

        Raises:
            OSError: it cannot be written; the one before stays whole.
        """
        rows = torch.tensor(self.history, dtype=torch.float64).view(-1, len(COLUMNS))
        tensors = {
            "model": dict(self.model.state_dict()),
            "optimizer": flatten_optimizer(self.optimizer),
            "random": {"dropout": self.generator.get_state()},
            "history": {"rows": rows},
        }
        values = {
            "recipe": self.recipe.model_dump(mode="json"),
            "seed": self.seed,
            "factors": self.factors,
        }
        write_checkpoint(path, Checkpoint(tensors, values))

    def resume(self, path: Path) -> bool:
        """Go on from a checkpoint.

        Args:
            path: the file.

        Returns:
            Whether there was one.

        Raises:
            CheckpointError: it is damaged, or of another recipe or network.
        """
        found = read_checkpoint(path)
        if found is None:
            return False
        wanted = (self.recipe.model_dump(mode="json"), self.seed)
        if (found.values.get("recipe"), found.values.get("seed")) != wanted:
            raise CheckpointError(f"{path}: checkpoint of another recipe; delete it to train anew")
        missing = [group for group in GROUPS if group not in found.tensors]
        if missing:
            raise CheckpointError(f"{path}: checkpoint without {', '.join(missing)}")
        load_state(self.model, found.tensors["model"], str(path))
        load_optimizer(self.optimizer, found.tensors["optimizer"])
        self.generator.set_state(found.tensors["random"]["dropout"])
        self.factors = found.values["factors"]
        self.history = []
        self._enter(0)
        for row in found.tensors["history"]["rows"].tolist():
            self.epoch_done(row)
        return True

    def rows(self, start: int = 0) -> list[dict[str, float]]:
        """Finished epochs from ``start`` on as rows of the log."""
        return [
            {"epoch": start + number, **dict(zip(COLUMNS, row, strict=True))}
            for number, row in enumerate(self.history[start:])
        ]
