"""A training in progress: its best state, and checkpoints that restore all of it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from bitgnn.distillation import ranks
from bitgnn.distillation.checkpoint import (
    CheckpointError,
    RunLog,
    check_state,
    random_state,
    read_checkpoint,
    set_random_state,
    write_checkpoint,
)
from bitgnn.distillation.inside import Inside
from bitgnn.distillation.recipe import LEAST_EPOCHS, DistillRecipe
from bitgnn.nn.bwta_linear import ActivationQuantizer

if TYPE_CHECKING:
    from bitgnn.distillation.captured import RepeatedEpoch

NEVER = -1
CHECKPOINT_SHARE = 0.05
"""Share of a training's time that checkpoints may take."""


class BestState:
    """Best state so far; ties keep the earlier epoch.

    With ``patience`` an epoch counts only while at most so many have passed since the best one,
    so the choice is that of a training stopped at the exact epoch even where the device is asked
    later. NaN is never better.
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
        """Keep the present state if ``value`` (lower is better) is a new best.

        Both are scalars on the model's device; ``epoch`` counts from 0, int64.
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


def _state(model: nn.Module) -> dict[str, Any]:
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def _groups(model: nn.Module, recipe: DistillRecipe) -> list[dict[str, Any]]:
    """Parameter groups; learnt scales of activations have a rate, or move in units of their start.

    Steps of Adam are as large as the rate, which would take a small scale below zero at once. Units
    are powers of two, so that scales of a size share a step of the optimizer.
    """
    quantizers = [module for module in model.modules() if isinstance(module, ActivationQuantizer)]
    scales = {id(q.scale): q.scale for q in quantizers if q.is_set}
    others = [parameter for parameter in model.parameters() if id(parameter) not in scales]
    by_unit: dict[float, list[nn.Parameter]] = {}
    for scale in scales.values():
        _, exponent = math.frexp(float(scale.detach()))
        unit = min(1.0, 2.0 ** (exponent - 1))
        if recipe.scale_rate is not None:
            unit = recipe.scale_rate / recipe.learning_rate
        by_unit.setdefault(unit, []).append(scale)
    units = [{"params": by_unit[unit], "unit": unit} for unit in sorted(by_unit)]
    return [{"params": others}, *units]


class Fit:
    """A training in progress: model, optimizer, random state, history and the best state so far.

    A checkpoint must agree in the plain values of ``identity``; ``inside`` adds its losses to those
    of the teacher.
    """

    columns = ("train_loss", "val_score", "divergence", "learning_rate", "seconds")
    """Of ``history``, which has float64 values of each finished epoch, on any device."""

    def __init__(
        self,
        model: nn.Module,
        recipe: DistillRecipe,
        identity: dict[str, Any],
        inside: Inside | None = None,
    ) -> None:
        rates: dict[str, Any] = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay}
        optimizer = Adam(_groups(model, recipe), fused=True, **rates)
        self.model, self.recipe, self.optimizer = model, recipe, optimizer
        self.replica = ranks.replica(model)  # its forward is the one that trains
        self.device = next(model.parameters()).device
        self.history: list[Tensor] = []
        patience = None
        if recipe.patience is not None and recipe.schedule == "constant":
            patience = max(LEAST_EPOCHS, int(recipe.patience * recipe.epochs))
        self.best = BestState(model, patience)
        self.identity = identity
        self.ended = ""  # why, behind fit()
        self.inside = inside
        self.number = torch.zeros_like(self.best.epoch)  # of the epoch under way, on the device
        self.run: RepeatedEpoch | None = None  # the work of an epoch, from the first one on
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
        """Seconds of all finished epochs."""
        return float(self.table()[:, -1].sum())

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of all groups, in units of each."""
        for group in self.optimizer.param_groups:
            own = rate * group.get("unit", 1.0)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(own)
            else:
                group["lr"] = own

    def settle(self, since: float) -> float:
        """Wait for the GPU, add the wait to the last epoch, and return the time."""
        if self.device.type == "cuda" and self.history:
            torch.cuda.synchronize(self.device)
            self.history[-1][-1] += time.perf_counter() - since
        return time.perf_counter()

    def save(self, path: Path) -> None:
        """Write a checkpoint of the state between two epochs."""
        random_tensors, random_values = random_state(self.device)
        groups = {
            "model": dict(self.model.state_dict()),
            "optimizer": {
                f"{number}.{name}": torch.as_tensor(value)
                for number, state in self.optimizer.state_dict()["state"].items()
                for name, value in state.items()
            },
            "random": random_tensors,
            "history": {"rows": self.table()},
            "best": {**self.best.state, ":value": self.best.value, ":epoch": self.best.epoch},
        }
        values = {
            "epoch": self.epoch,
            "random": random_values,
            "recipe": self.recipe.model_dump(mode="json"),
            "device": self.device.type,
            **self.identity,
        }
        write_checkpoint(path, groups, values)

    def resume(self, path: Path) -> None:
        """Resume from a checkpoint, if there is one; one that does not fit changes nothing."""
        found = read_checkpoint(path)
        if found is None:
            return
        groups, values = found
        recorded = {**values, **values.get("recipe", {})}
        different = [
            f"{key} {recorded.get(key)!r} there, {value!r} here"
            for key, value in {**self.identity, **self.recipe.model_dump(mode="json")}.items()
            if recorded.get(key) != value
        ]
        if different:
            raise CheckpointError(f"{path}: checkpoint of another recipe: {'; '.join(different)}")
        check_state(self.model, groups.get("model", {}), path)
        missing = sorted({"optimizer", "random", "history", "best"} - groups.keys())
        if missing:
            raise CheckpointError(f"{path}: checkpoint without {', '.join(missing)}")
        self.model.load_state_dict(groups["model"])
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in groups["optimizer"].items():
            number, _, name = key.partition(".")
            state.setdefault(int(number), {})[name] = tensor
        # The groups of parameters keep their settings.
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        self.history = list(groups["history"]["rows"].to(self.device))
        best = self.best
        kept = {**best.state, ":value": best.value, ":epoch": best.epoch}
        for name, tensor in groups["best"].items():
            kept[name].copy_(tensor)
        set_random_state(groups["random"], values["random"], self.device)


class Keeper:
    """Checkpoint and log of a training, from which it is resumed.

    They are written as often as takes at most 5 % of the time: after every epoch, unless epochs are
    shorter than 20 times what writing takes (a few milliseconds for small graphs). ``base`` is the
    path of the files without their endings; None writes nothing.
    """

    def __init__(self, session: Fit, base: Path | None) -> None:
        self._session, self._base, self._pause = session, base, 0.0
        if base is not None:
            self._checkpoint, self._log = base.with_name(f"{base.name}.checkpoint"), RunLog(base)
            session.resume(self._checkpoint)
            if ranks.rank() == 0:
                self._log.restart(session.rows())
        self._logged = session.epoch
        self._last = time.perf_counter()

    def epoch_done(self) -> None:
        """Write a checkpoint after an epoch if it is time."""
        is_due = float(time.perf_counter() - self._last >= self._pause)
        if ranks.largest(is_due, self._session.device):
            self.keep()
            self._pause = (time.perf_counter() - self._last) / CHECKPOINT_SHARE

    def keep(self) -> None:
        """Write the checkpoint, and the epochs that the log lacks."""
        if self._base is None:
            return
        self._last = self._session.settle(time.perf_counter())
        self._session.save(self._checkpoint)
        if ranks.rank() == 0:
            self._log.append(self._session.rows(self._logged))
        self._logged = self._session.epoch
