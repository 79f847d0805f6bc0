"""A training in progress, saved between two epochs and taken up again as one unit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bitgnn.train.checkpoint import (
    Checkpoint,
    CheckpointError,
    check_state,
    flatten_optimizer,
    load_optimizer,
    load_state,
    read_checkpoint,
    write_checkpoint,
)
from bitgnn.train.randomness import random_state, set_random_state
from bitgnn.train.recipe import Recipe, Strict

NEVER = -1


class BestState:
    """The model's state at the best epoch so far, first one first.

    With ``patience`` an epoch counts only while at most so many have passed since the best one,
    so the choice is that of a training stopped at the exact epoch even where the device is asked
    later. NaN is never better.

    Args:
        model: whose state is kept.
        patience: epochs without a better one after which none counts; None for no limit.
    """

    def __init__(self, model: nn.Module, patience: int | None) -> None:
        self.model = model
        self.patience = patience
        device = next(model.parameters()).device
        self.value = torch.full((), float("inf"), dtype=torch.float64, device=device)
        self.epoch = torch.full((), NEVER, dtype=torch.int64, device=device)
        self.state = {name: tensor.clone() for name, tensor in _state(model).items()}

    @torch.no_grad()
    def offer(self, epoch: int | Tensor, value: Tensor) -> None:
        """Keep the present state if ``value`` (lower is better) beats all before.

        Args:
            epoch: its number, from 0, rising; a number or a scalar on the model's device.
            value: scalar on the model's device.
        """
        epoch = epoch if isinstance(epoch, Tensor) else torch.full_like(self.epoch, epoch)
        better = value < self.value
        if self.patience is not None:
            # Before the first finite value there is nothing to have patience with.
            waited = epoch - self.epoch
            better &= (self.epoch == NEVER) | (waited <= self.patience)
        present = _state(self.model)
        if better.device.type == "cpu":
            if better:
                self.value.copy_(value)
                self.epoch.copy_(epoch)
                for name, kept in self.state.items():
                    kept.copy_(present[name])
            return
        torch.where(better, value.double(), self.value, out=self.value)
        torch.where(better, epoch, self.epoch, out=self.epoch)
        for name, kept in self.state.items():
            torch.where(better, present[name], kept, out=kept)

    def stop_after(self) -> int | None:
        """Last epoch that counts if no better one comes; None without patience or best."""
        best = int(self.epoch)
        return None if self.patience is None or best == NEVER else best + self.patience

    def tensors(self) -> dict[str, Tensor]:
        """Everything to put into a checkpoint."""
        return {**self.state, ":value": self.value, ":epoch": self.epoch}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Put back what :meth:`tensors` gave."""
        rest = dict(tensors)
        self.value.copy_(rest.pop(":value"))
        self.epoch.copy_(rest.pop(":epoch"))
        for name, tensor in rest.items():
            self.state[name].copy_(tensor)


def _state(model: nn.Module) -> dict[str, Any]:
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


COLUMNS = (
    "train_loss",
    "val_loss",
    "train_score",
    "val_score",
    "test_score",
    "learning_rate",
    "seconds",
)


class Session:
    """What trainings of graphs, images and text share: model, optimizer, random state, history.

    Attributes:
        columns: names of the values of an epoch; the last one is ``seconds``.
        history: float64 values of each finished epoch, on any device.
    """

    columns: ClassVar[tuple[str, ...]]

    def __init__(self, model: nn.Module, recipe: Strict, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.device = next(model.parameters()).device
        self.history: list[Tensor] = []
        self._recipe = recipe

    @property
    def epoch(self) -> int:
        """Epochs finished."""
        return len(self.history)

    def finished(self, row: Sequence[float]) -> None:
        """Note the values of an epoch."""
        self.history.append(torch.tensor(row, dtype=torch.float64))

    def table(self, start: int = 0) -> Tensor:
        """``[E, columns]`` values of finished epochs from ``start`` on."""
        rows = self.history[start:]
        return torch.stack(rows) if rows else torch.zeros(0, len(self.columns)).double()

    def rows(self, start: int = 0) -> list[dict[str, float]]:
        """Finished epochs from ``start`` on as rows of the log."""
        return [
            {"epoch": number, **dict(zip(self.columns, row, strict=True))}
            for number, row in enumerate(self.table(start).tolist(), start)
        ]

    def settle(self, since: float) -> float:
        """Wait for what the last epoch left to be done, count that to it, and tell the time."""
        del since  # most trainings read their scores, and so have waited
        return time.perf_counter()

    def save(self, path: Path) -> None:
        """Write a checkpoint of the state between two epochs.

        Raises:
            OSError: it cannot be written; the one before stays whole.
        """
        random_tensors, random_values = self._random()
        tensors = {
            "model": dict(self.model.state_dict()),
            "optimizer": flatten_optimizer(self.optimizer),
            "random": random_tensors,
            "history": {"rows": self.table()},
            **self._further_tensors(),
        }
        values = {
            "epoch": self.epoch,
            "random": random_values,
            "recipe": self._recipe.model_dump(mode="json"),
            "device": self.device.type,
            **self._identity(),
            **self._further_values(),
        }
        write_checkpoint(path, Checkpoint(tensors, values))

    def resume(self, path: Path) -> bool:
        """Go on from a checkpoint.

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
        self.history = list(found.tensors["history"]["rows"].to(self.device))
        self._restore(found)
        self._set_random(found.tensors["random"], found.values["random"])
        return True

    def _match(self, found: Checkpoint, path: Path) -> None:
        wanted = {**self._identity(), **self._recipe.model_dump(mode="json")}
        recorded = {**found.values, **found.values.get("recipe", {})}
        different = [
            f"{key} {recorded.get(key)!r} there, {value!r} here"
            for key, value in wanted.items()
            if recorded.get(key) != value
        ]
        if different:
            raise CheckpointError(f"{path}: checkpoint of another recipe: {'; '.join(different)}")
        check_state(self.model, found.tensors.get("model", {}), str(path))
        groups = {"optimizer", "random", "history", *self._further_tensors()}
        missing = sorted(groups - found.tensors.keys())
        if missing:
            raise CheckpointError(f"{path}: checkpoint without {', '.join(missing)}")

    def _random(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state of random generators, as tensors and as plain values."""
        return random_state(self.device)

    def _set_random(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Put back what :meth:`_random` gave."""
        set_random_state(tensors, values, self.device)

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must say beside the recipe to be one of this training."""
        return {}

    def _further_tensors(self) -> dict[str, dict[str, Tensor]]:
        """Further groups of tensors for a checkpoint."""
        return {}

    def _further_values(self) -> dict[str, Any]:
        """Further plain values that change from epoch to epoch."""
        return {}

    def _restore(self, found: Checkpoint) -> None:
        """Take over what a checkpoint holds beside what all have."""


class NodeSession(Session):
    """A training on the nodes of a graph: the state of the best epoch as well."""

    columns = COLUMNS

    def __init__(self, model: nn.Module, recipe: Recipe) -> None:
        optimizer = torch.optim.Adam(
            model.parameters(),
            lr=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            fused=True,
        )
        super().__init__(model, recipe, optimizer)
        self.recipe = recipe
        self.best = BestState(model, recipe.patience)

    def settle(self, since: float) -> float:
        """Wait for a GPU to do what it was told."""
        if self.device.type == "cuda" and self.history:
            torch.cuda.synchronize(self.device)
            self.history[-1][-1] += time.perf_counter() - since
        return time.perf_counter()

    def _further_tensors(self) -> dict[str, dict[str, Tensor]]:
        return {"best": self.best.tensors()}

    def _restore(self, found: Checkpoint) -> None:
        self.best.load(found.tensors["best"])
