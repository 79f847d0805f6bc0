"""What the loop needs to know of a task, and an epoch's batches on the device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

__all__ = ["EpochPlan", "EpochTable", "Evaluation", "Task", "make_optimizer"]


@dataclass(frozen=True)
class EpochPlan:
    """The batches of an epoch, in their order.

    Attributes:
        lengths: of each step, what batches of one shape have in common, such as the tokens that
            sentences are padded to.
        index: int64 ``[S, B]`` numbers of the examples of each step.
        weight: float32 ``[S, B]``, 0 for those that only fill up their batch.
    """

    lengths: list[int]
    index: Tensor
    weight: Tensor


class Evaluation(ABC):
    """Sums up what the model answers on one part of the data."""

    plan: EpochPlan

    @abstractmethod
    def start(self) -> None:
        """Set all sums to 0."""

    @abstractmethod
    def add(self, length: int, index: Tensor, weight: Tensor) -> None:
        """Evaluate a batch; sums stay on the device."""


class Task(ABC):
    """A model with the data it is trained on.

    Attributes:
        columns: names of the values of an epoch; the last one is ``seconds``.
        model: what is trained, in place.
        device: where model and data are.
        only: names of the layers that are quantised; None for all that can be.
        levels: largest integers of activations in the stages; None for floats.
        alignment: how scales follow from one stage to the next.
        patience: epochs without a lower validation loss that end a stage, not the last.
        most_gradient: norm that gradients are cut to.
        evaluations: each an :class:`Evaluation`, done behind each epoch.
    """

    columns: ClassVar[tuple[str, ...]]
    model: Any
    device: torch.device
    only: Sequence[str] | None = None
    levels: tuple[int, ...] | None = None
    alignment: Any = "none"
    patience: int | None = None
    most_gradient: float | None = None
    evaluations: Sequence[Any] = ()

    @abstractmethod
    def groups(self) -> list[tuple[list[nn.Parameter], float, float]]:
        """Parameters with their highest learning rate and their weight decay."""

    @abstractmethod
    def rates(self, epoch: int, epochs: int, steps: int) -> Tensor:
        """float32 ``[S]``: what learning rates are multiplied by in the steps of an epoch.

        Args:
            epoch: of the stage, from 0.
            epochs: of the stage.
            steps: of an epoch.
        """

    @abstractmethod
    def plan(self, seed: int) -> EpochPlan:
        """Begin an epoch; its batches are of the same shape for every seed."""

    @abstractmethod
    def loss(self, length: int, index: Tensor, weight: Tensor) -> Tensor:
        """The loss of a training batch."""

    @abstractmethod
    def results(self) -> dict[str, float]:
        """What the epoch and its evaluations came to, by column."""

    def calibrate(self, model: nn.Module | None = None) -> None:
        """Send some training data, always the same, through the model or a copy of it.

        The model is in evaluation mode then.
        """
        return None

    def behind_step(self) -> None:
        """Called behind each update."""
        return None


def make_optimizer(task: Task) -> torch.optim.Optimizer:
    """AdamW whose learning rates are tensors, so that recorded steps follow them."""
    groups = [
        {
            "params": members,
            "lr": torch.tensor(rate, device=task.device),
            "highest": rate,
            "weight_decay": decay,
        }
        for members, rate, decay in task.groups()
        if members
    ]
    return torch.optim.AdamW(groups, fused=True, capturable=task.device.type == "cuda")


class EpochTable:
    """An epoch's batches on the device, where recorded steps take them one after the other.

    Args:
        device: where.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tensors: list[Tensor] = []
        self._position = torch.zeros(1, dtype=torch.int64, device=device)

    def fill(self, plan: EpochPlan, rates: Tensor | None = None) -> None:
        """Start an epoch.

        Args:
            plan: its batches, of the shape that all of them have.
            rates: float32 ``[S, G]``, the learning rate of each step and group of parameters.
        """
        rates = torch.zeros(len(plan.weight), 0) if rates is None else rates
        sources = (plan.index, plan.weight, rates)
        if not self._tensors:
            self._tensors = [torch.empty_like(source, device=self._device) for source in sources]
        for target, source in zip(self._tensors, sources, strict=True):
            is_copied = target.is_cuda and not source.is_cuda and source.numel() > 0
            pinned = source.pin_memory() if is_copied else source
            target.copy_(pinned, non_blocking=is_copied)
        self._position.zero_()

    def take(self) -> tuple[Tensor, Tensor, Tensor]:
        """Index ``[B]``, weight ``[B]`` and learning rates ``[G]`` of the next step."""
        index, weight, rates = (t.index_select(0, self._position)[0] for t in self._tensors)
        self._position += 1
        return index, weight, rates
