"""A training in progress, saved between two epochs and taken up again as one unit."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from bitgnn.distillation.checkpoint import (
    Checkpoint,
    CheckpointError,
    check_state,
    flatten_optimizer,
    load_optimizer,
    load_state,
    read_checkpoint,
    write_checkpoint,
)
from bitgnn.distillation.randomness import random_state, set_random_state
from bitgnn.distillation.recipe import LEAST_EPOCHS, DistillRecipe
from bitgnn.nn.bwta_linear import ActivationQuantizer

if TYPE_CHECKING:
    from bitgnn.distillation.captured import RepeatedEpoch

__all__ = ["BestState", "Fit"]

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
    def offer(self, epoch: Tensor, value: Tensor) -> None:
        """Keep the present state if ``value`` (lower is better) beats all before.

        Args:
            epoch: its number, from 0, rising; int64 scalar on the model's device.
            value: scalar on the model's device.
        """
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


def _groups(model: nn.Module) -> list[dict[str, Any]]:
    """Parameters to train; learnt scales of activations move in units of where they start.

    Steps of Adam are as large as the rate, which would take a small scale below zero at once. Units
    are powers of two, so that scales of a size share a step of the optimizer.
    """
    quantizers = [module for module in model.modules() if isinstance(module, ActivationQuantizer)]
    scales = {id(q.scale): q.scale for q in quantizers if q.is_set}
    others = [parameter for parameter in model.parameters() if id(parameter) not in scales]
    by_unit: dict[float, list[nn.Parameter]] = {}
    for scale in scales.values():
        _, exponent = math.frexp(float(scale.detach()))
        by_unit.setdefault(min(1.0, 2.0 ** (exponent - 1)), []).append(scale)
    units = [{"params": by_unit[unit], "unit": unit} for unit in sorted(by_unit)]
    return [{"params": others}, *units]


class Fit:
    """A training in progress: model, optimizer, random state, history and the best state so far.

    Args:
        model: trained in place.
        recipe: how.
        identity: plain values that a checkpoint must agree in.

    Attributes:
        columns: names of the values of an epoch.
        history: float64 values of each finished epoch, on any device.
        ended: why it ended, behind :func:`~bitgnn.distillation.fitting.fit`.
        number: of the epoch under way, on the device.
        run: does the work of an epoch; None in front of the first.
    """

    columns = ("train_loss", "val_score", "divergence", "learning_rate", "seconds")

    def __init__(self, model: nn.Module, recipe: DistillRecipe, identity: dict[str, Any]) -> None:
        decay = recipe.weight_decay
        optimizer = Adam(_groups(model), lr=recipe.learning_rate, weight_decay=decay, fused=True)
        self.model, self.recipe, self.optimizer = model, recipe, optimizer
        self.device = next(model.parameters()).device
        self.history: list[Tensor] = []
        patience = None
        if recipe.patience is not None and recipe.schedule == "constant":
            patience = max(LEAST_EPOCHS, int(recipe.patience * recipe.epochs))
        self.best = BestState(model, patience)
        self.identity = identity
        self.ended = ""
        self.number = torch.zeros_like(self.best.epoch)
        self.run: RepeatedEpoch | None = None
        if self.device.type == "cuda":  # where a graph reads it
            for group in optimizer.param_groups:
                group["lr"] = torch.tensor(recipe.learning_rate, device=self.device)

    @property
    def epoch(self) -> int:
        """Epochs finished."""
        return len(self.history)

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

    @property
    def seconds(self) -> float:
        """Of all finished epochs."""
        return float(self.table()[:, -1].sum())

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of all parameters, of some in units of their own."""
        for group in self.optimizer.param_groups:
            own = rate * group.get("unit", 1.0)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(own)
            else:
                group["lr"] = own

    def settle(self, since: float) -> float:
        """Wait for a GPU, count the wait to the last epoch, and tell the time."""
        if self.device.type == "cuda" and self.history:
            torch.cuda.synchronize(self.device)
            self.history[-1][-1] += time.perf_counter() - since
        return time.perf_counter()

    def save(self, path: Path) -> None:
        """Write a checkpoint of the state between two epochs.

        Raises:
            OSError: it cannot be written; the one before stays whole.
        """
        random_tensors, random_values = random_state(self.device)
        tensors = {
            "model": dict(self.model.state_dict()),
            "optimizer": flatten_optimizer(self.optimizer),
            "random": random_tensors,
            "history": {"rows": self.table()},
            "best": self.best.tensors(),
        }
        values = {
            "epoch": self.epoch,
            "random": random_values,
            "recipe": self.recipe.model_dump(mode="json"),
            "device": self.device.type,
            **self.identity,
        }
        write_checkpoint(path, Checkpoint(tensors, values))

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint, if there is one.

        Raises:
            CheckpointError: it is damaged, or of another recipe or model; nothing was changed.
        """
        found = read_checkpoint(path)
        if found is None:
            return
        self._match(found, path)
        load_state(self.model, found.tensors["model"], str(path))
        load_optimizer(self.optimizer, found.tensors["optimizer"])
        self.history = list(found.tensors["history"]["rows"].to(self.device))
        self.best.load(found.tensors["best"])
        set_random_state(found.tensors["random"], found.values["random"], self.device)

    def _match(self, found: Checkpoint, path: Path) -> None:
        wanted = {**self.identity, **self.recipe.model_dump(mode="json")}
        recorded = {**found.values, **found.values.get("recipe", {})}
        different = [
            f"{key} {recorded.get(key)!r} there, {value!r} here"
            for key, value in wanted.items()
            if recorded.get(key) != value
        ]
        if different:
            raise CheckpointError(f"{path}: checkpoint of another recipe: {'; '.join(different)}")
        check_state(self.model, found.tensors.get("model", {}), str(path))
        groups = {"optimizer", "random", "history", "best"}
        missing = sorted(groups - found.tensors.keys())
        if missing:
            raise CheckpointError(f"{path}: checkpoint without {', '.join(missing)}")
