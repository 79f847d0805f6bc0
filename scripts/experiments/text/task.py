"""What a training on text needs to know of its task: batches, losses, evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from experiments.text.batches import EpochPlan

__all__ = ["Evaluation", "Task"]


class Evaluation(Protocol):
    """Sums up what the model answers on one part of the data."""

    @property
    def plan(self) -> EpochPlan:
        """The batches, the same every time."""

    def start(self) -> None:
        """Set all sums to 0."""

    def add(self, length: int, index: Tensor, weight: Tensor) -> None:
        """Evaluate a batch; sums stay on the device."""


class Task(Protocol):
    """A model with the data it is trained on."""

    @property
    def model(self) -> nn.Module:
        """What is trained, in place."""

    @property
    def only(self) -> Sequence[str] | None:
        """Names of the layers that are quantised; None for all that can be."""

    @property
    def device(self) -> torch.device:
        """Where model and data are."""

    def plan(self, seed: int) -> EpochPlan:
        """The batches of an epoch, of the same shape for every seed."""

    def calibrate(self, model: nn.Module | None = None) -> None:
        """Send some training data, always the same, through the model or a copy of it.

        The model is in evaluation mode then.
        """

    def loss(self, length: int, index: Tensor, weight: Tensor) -> Tensor:
        """The loss of a training batch."""

    def evaluations(self) -> Sequence[Evaluation]:
        """What is evaluated behind each epoch."""

    def results(self) -> tuple[float, float, float]:
        """Validation loss, validation score and test score, from the evaluations' sums."""
