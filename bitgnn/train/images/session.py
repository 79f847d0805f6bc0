"""One training on images in progress: network, optimizer, history, saved and taken up again."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from bitgnn.train.checkpoint import (
    Checkpoint,
    CheckpointError,
    flatten_optimizer,
    load_optimizer,
    load_state,
    read_checkpoint,
    write_checkpoint,
)
from bitgnn.train.images.recipe import ImageRecipe
from bitgnn.train.images.step import make_optimizer
from bitgnn.train.randomness import random_state, set_random_state

__all__ = ["COLUMNS", "ImageSession"]

COLUMNS = ("train_loss", "train_accuracy", "test_accuracy", "learning_rate", "seconds")
GROUPS = ("model", "optimizer", "random", "history")


class ImageSession:
    """Everything of a training that changes from epoch to epoch.

    Args:
        model: trained in place.
        recipe: how.
    """

    def __init__(self, model: nn.Module, recipe: ImageRecipe) -> None:
        self.model = model
        self.recipe = recipe
        self.device = next(model.parameters()).device
        self.optimizer = make_optimizer(model, recipe)
        self.history: list[list[float]] = []

    @property
    def epoch(self) -> int:
        """Epochs finished."""
        return len(self.history)

    def save(self, path: Path) -> None:
        """Write a checkpoint of the state between two epochs.

        Raises:
            OSError: it cannot be written; the one before stays whole.
        """
        random_tensors, random_values = random_state(self.device)
        rows = torch.tensor(self.history, dtype=torch.float64).view(-1, len(COLUMNS))
        tensors = {
            "model": dict(self.model.state_dict()),
            "optimizer": flatten_optimizer(self.optimizer),
            "random": random_tensors,
            "history": {"rows": rows},
        }
        values = {"random": random_values, "recipe": self.recipe.model_dump(mode="json")}
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
        if found.values.get("recipe") != self.recipe.model_dump(mode="json"):
            raise CheckpointError(f"{path}: checkpoint of another recipe; delete it to train anew")
        missing = [group for group in GROUPS if group not in found.tensors]
        if missing:
            raise CheckpointError(f"{path}: checkpoint without {', '.join(missing)}")
        load_state(self.model, found.tensors["model"], str(path))
        load_optimizer(self.optimizer, found.tensors["optimizer"])
        self.history = found.tensors["history"]["rows"].tolist()
        set_random_state(found.tensors["random"], found.values["random"], self.device)
        return True

    def rows(self, start: int = 0) -> list[dict[str, float]]:
        """Finished epochs from ``start`` on as rows of the log."""
        return [
            {"epoch": start + number, **dict(zip(COLUMNS, row, strict=True))}
            for number, row in enumerate(self.history[start:])
        ]
