"""One training in progress: model, optimizer, averages, best state and history, as one unit."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bitgnn.train.checkpoint import (
    Checkpoint,
    CheckpointError,
    flatten_optimizer,
    load_optimizer,
    load_state,
    read_checkpoint,
    write_checkpoint,
)
from bitgnn.train.randomness import random_state, set_random_state
from bitgnn.train.recipe import Recipe
from bitgnn.train.selection import BestState

__all__ = ["COLUMNS", "Session"]

COLUMNS = (
    "train_loss",
    "val_loss",
    "train_score",
    "val_score",
    "test_score",
    "learning_rate",
    "seconds",
)
GROUPS = ("model", "optimizer", "best", "random", "history")


class Session:
    """Everything of a training that changes from epoch to epoch.

    Args:
        model: trained in place.
        recipe: how.
    """

    def __init__(self, model: nn.Module, recipe: Recipe) -> None:
        self.model = model
        self.recipe = recipe
        self.device = next(model.parameters()).device
        self.optimizer = torch.optim.Adam(
            model.parameters(),
            lr=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            fused=True,
        )
        self.average = self._average()
        self.best = BestState(self.validated, recipe.patience)
        self.epoch = 0
        self.history = torch.full(
            (recipe.epochs, len(COLUMNS)), float("nan"), dtype=torch.float64, device=self.device
        )

    def _average(self) -> AveragedModel | None:
        if self.recipe.average == "none":
            return None
        function = None
        if self.recipe.average == "ema":
            function = get_ema_multi_avg_fn(self.recipe.average_decay)
        return AveragedModel(self.model, multi_avg_fn=function)

    @property
    def validated(self) -> nn.Module:
        """The model whose state is validated and kept: the average where there is one."""
        return self.model if self.average is None else self.average.module

    def stepped(self) -> None:
        """Tell that an optimizer step of the present epoch was made."""
        if self.average is None:
            return
        if self.epoch >= self.recipe.average_from:
            self.average.update_parameters(self.model)
        else:
            self.average.module.load_state_dict(self.model.state_dict())
        # Statistics of norms are averages already.
        for kept, present in zip(self.average.module.buffers(), self.model.buffers(), strict=True):
            kept.copy_(present)

    def save(self, path: Path) -> None:
        """Write a checkpoint of the state between two epochs.

        Raises:
            OSError: it cannot be written; the one before stays whole.
        """
        random_tensors, random_values = random_state(self.device)
        tensors = {
            "model": dict(self.model.state_dict()),
            "optimizer": flatten_optimizer(self.optimizer),
            "best": self.best.tensors(),
            "random": random_tensors,
            "history": {"rows": self.history[: self.epoch]},
        }
        if self.average is not None:
            tensors["average"] = dict(self.average.state_dict())
        values = {
            "epoch": self.epoch,
            "random": random_values,
            "recipe": self.recipe.model_dump(mode="json"),
            "device": self.device.type,
        }
        write_checkpoint(path, Checkpoint(tensors, values))

    def resume(self, path: Path) -> bool:
        """Go on from a checkpoint.

        Args:
            path: the file.

        Returns:
            Whether there was one.

        Raises:
            CheckpointError: it is damaged, or of another recipe or model; nothing was changed.
        """
        found = read_checkpoint(path)
        if found is None:
            return False
        self._match(found, path)
        load_state(self.model, found.tensors["model"], str(path))
        load_optimizer(self.optimizer, found.tensors["optimizer"])
        self.best.load(found.tensors["best"])
        self.epoch = int(found.values["epoch"])
        self.history[: self.epoch] = found.tensors["history"]["rows"].to(self.device)
        if self.average is not None:
            load_state(self.average, found.tensors["average"], str(path))
        set_random_state(found.tensors["random"], found.values["random"], self.device)
        return True

    def _match(self, found: Checkpoint, path: Path) -> None:
        wanted: dict[str, Any] = self.recipe.model_dump(mode="json")
        recorded = found.values.get("recipe", {})
        different = [key for key in wanted if recorded.get(key) != wanted[key]]
        if different:
            pairs = (
                f"{key} {recorded.get(key)!r} there, {wanted[key]!r} here" for key in different
            )
            raise CheckpointError(f"{path}: checkpoint of another recipe: {'; '.join(pairs)}")
        # Tried on a copy first, so that a mismatch leaves everything as it was.
        load_state(copy.deepcopy(self.model), found.tensors.get("model", {}), str(path))
        groups = {*GROUPS, *(() if self.average is None else ("average",))}
        missing = sorted(groups - found.tensors.keys())
        if missing:
            raise CheckpointError(f"{path}: checkpoint without {', '.join(missing)}")

    def rows(self, start: int) -> list[dict[str, float]]:
        """Finished epochs from ``start`` on as rows of the log."""
        values = self.history[start : self.epoch].tolist()
        return [
            {"epoch": start + i, **dict(zip(COLUMNS, row, strict=True))}
            for i, row in enumerate(values)
        ]
