"""Fake kernels of rounding in training and its gradients; see ``_fake``."""

import torch
from torch import Tensor

from bitgnn.ops._fake_calls import fakes_like
from bitgnn.ops.reference import OPERATORS


def _round_levels(x: Tensor) -> Tensor:
    """Integers as floats."""
    return x.new_empty(x.shape, dtype=torch.float32)


def _clip_gradients(x: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of values and scale."""
    return _round_levels(x), x.new_empty((), dtype=torch.float32)


def _shift_signs(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Signs and their scale."""
    return _clip_gradients(weight)


QUANTISE_FAKES = fakes_like(
    OPERATORS,
    (
        (["round_levels"], _round_levels),
        (["clip_gradients"], _clip_gradients),
        (["shift_signs"], _shift_signs),
    ),
)
"""Fake kernel of each operator, by name."""
