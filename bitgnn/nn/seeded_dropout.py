"""Dropout that can draw from a generator of its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["SeededDropout"]


class SeededDropout(nn.Dropout):
    """torch's ``Dropout`` whose random numbers may come from a generator of their own.

    Trainings that run in turns repeat one by one only if each has its own random numbers.

    Attributes:
        generator: on the device of the inputs; None takes torch's.
    """

    generator: torch.Generator | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Drop values with probability ``p`` in training and scale the others up."""
        if self.generator is None or not self.training or self.p == 0:
            return super().forward(input)
        drawn = torch.rand(input.shape, device=input.device, generator=self.generator)
        return input * ((drawn >= self.p) / (1 - self.p))
