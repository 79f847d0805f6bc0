"""One training step on text and its optimizer; the sum of losses stays on the device."""

from __future__ import annotations

import torch
from torch import nn

from bitgnn.nn.multistage import scale_parameters
from experiments.text.batches import EpochTable, Task
from experiments.text.recipe import TextRecipe

__all__ = ["TrainStep", "make_optimizer", "restart"]

MOST_GRADIENT = 1.0
"""Norm that gradients are cut to."""


def make_optimizer(model: nn.Module, recipe: TextRecipe) -> torch.optim.Optimizer:
    """AdamW whose learning rates are tensors, so that recorded steps follow them.

    Args:
        model: on its device.
        recipe: learning rates and weight decay.
    """
    scales = {id(p) for p in scale_parameters(model)}
    parameters = [p for p in model.parameters() if id(p) not in scales]
    device = parameters[0].device
    settings = (
        ([p for p in parameters if p.dim() > 1], recipe.learning_rate, recipe.weight_decay),
        ([p for p in parameters if p.dim() <= 1], recipe.learning_rate, 0.0),
        (
            [p for p in model.parameters() if id(p) in scales],
            recipe.scale_learning_rate,
            0.0,
        ),
    )
    groups = [
        {
            "params": members,
            "lr": torch.tensor(rate, device=device),
            "highest": rate,
            "weight_decay": decay,
        }
        for members, rate, decay in settings
        if members
    ]
    return torch.optim.AdamW(groups, fused=True, capturable=device.type == "cuda")


@torch.no_grad()
def restart(optimizer: torch.optim.Optimizer) -> None:
    """Forget all momenta and the number of steps, in place: recorded steps go on with them."""
    for state in optimizer.state.values():
        for value in state.values():
            value.zero_()


class TrainStep:
    """Forward, backward and update on the next batch of an epoch's table.

    Args:
        task: whose model is in training mode.
        optimizer: of :func:`make_optimizer`.
        table: the batches.

    Attributes:
        loss: sum of the losses of all examples since it was last zeroed.
        seen: number of them.
    """

    def __init__(self, task: Task, optimizer: torch.optim.Optimizer, table: EpochTable) -> None:
        self._task, self._optimizer, self._table = task, optimizer, table
        self._parameters = list(task.model.parameters())
        self.loss = torch.zeros((), device=task.device)
        self.seen = torch.zeros((), device=task.device)

    def start(self) -> None:
        """Set the sums to 0."""
        self.loss.zero_()
        self.seen.zero_()

    def mean(self) -> float:
        """Mean loss of an example."""
        return float(self.loss) / max(float(self.seen), 1.0)

    def __call__(self, length: int) -> None:
        """Train on the next batch, whose examples have at most ``length`` tokens."""
        index, weight, factor = self._table.take()
        for group in self._optimizer.param_groups:
            torch.mul(factor, group["highest"], out=group["lr"])
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._task.loss(length, index, weight)
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, MOST_GRADIENT)
        self._optimizer.step()
        with torch.no_grad():
            self.loss += weight.sum() * loss
            self.seen += weight.sum()
