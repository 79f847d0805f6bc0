"""A training in progress that keeps its last epoch: network, optimizer and history as one unit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bitgnn.train.checkpoint import (
    Checkpoint,
    CheckpointError,
    flatten_optimizer,
    load_optimizer,
    load_state,
    read_checkpoint,
    write_checkpoint,
)
from bitgnn.train.recipe import Strict

__all__ = ["EpochSession"]

GROUPS = ("model", "optimizer", "random", "history")


class EpochSession(ABC):
    """What trainings of networks share; saved between two epochs and taken up again.

    Args:
        model: trained in place.
        recipe: how.
        optimizer: of the model's parameters.

    Attributes:
        columns: names of the values of an epoch.
        history: one row of them an epoch finished.
    """

    columns: ClassVar[tuple[str, ...]]

    def __init__(self, model: nn.Module, recipe: Strict, optimizer: torch.optim.Optimizer) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        self.optimizer = optimizer
        self.history: list[list[float]] = []
        self._recipe = recipe

    @property
    def epoch(self) -> int:
        """Epochs finished."""
        return len(self.history)

    @abstractmethod
    def _random(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state of random generators, as tensors and as plain values."""

    @abstractmethod
    def _set_random(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Put back what :meth:`_random` gave."""

    def _wanted(self) -> dict[str, Any]:
        """What a checkpoint must say to be one of this training."""
        return {"recipe": self._recipe.model_dump(mode="json")}

    def _further(self) -> dict[str, Any]:
        """Plain values that change from epoch to epoch."""
        return {}

    def _go_on(self, rows: list[list[float]], values: dict[str, Any]) -> None:
        """Take over the finished epochs, and what :meth:`_further` gave."""
        del values
        self.history = rows

    def save(self, path: Path) -> None:
        """Write a checkpoint of the state between two epochs.

        Raises:
            OSError: it cannot be written; the one before stays whole.
        """
        random_tensors, random_values = self._random()
        rows = torch.tensor(self.history, dtype=torch.float64).view(-1, len(self.columns))
        tensors = {
            "model": dict(self.model.state_dict()),
            "optimizer": flatten_optimizer(self.optimizer),
            "random": random_tensors,
            "history": {"rows": rows},
        }
        values = {"random": random_values, **self._wanted(), **self._further()}
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
        wanted = self._wanted()
        if {key: found.values.get(key) for key in wanted} != wanted:
            raise CheckpointError(f"{path}: checkpoint of another recipe; delete it to train anew")
        missing = [group for group in GROUPS if group not in found.tensors]
        if missing:
            raise CheckpointError(f"{path}: checkpoint without {', '.join(missing)}")
        load_state(self.model, found.tensors["model"], str(path))
        load_optimizer(self.optimizer, found.tensors["optimizer"])
        self._set_random(found.tensors["random"], found.values.get("random", {}))
        self._go_on(found.tensors["history"]["rows"].tolist(), found.values)
        return True

    def rows(self, start: int = 0) -> list[dict[str, float]]:
        """Finished epochs from ``start`` on as rows of the log."""
        return [
            {"epoch": start + number, **dict(zip(self.columns, row, strict=True))}
            for number, row in enumerate(self.history[start:])
        ]
