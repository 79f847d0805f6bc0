"""Which epoch is kept, decided on the device so that no epoch waits for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["BestState"]

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
    def offer(self, epoch: int, value: Tensor) -> None:
        """Keep the present state if ``value`` (lower is better) beats all before.

        Args:
            epoch: its number, from 0, rising.
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
                self.epoch.fill_(epoch)
                for name, kept in self.state.items():
                    kept.copy_(present[name])
            return
        torch.where(better, value.double(), self.value, out=self.value)
        torch.where(better, torch.full_like(self.epoch, epoch), self.epoch, out=self.epoch)
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
