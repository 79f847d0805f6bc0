"""Learnt scales of activations: their start, their guard and their gradient's factor."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

__all__ = ["LEAST_SCALE", "initial_scale", "lsq_factor", "lsq_scale", "positive_scale"]

LEAST_SCALE = 1e-8
"""Value of a scale that training drove to zero or below."""


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, factor: float) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.factor, None


def lsq_factor(numel: int, level: int) -> float:
    r""":math:`1 / \sqrt{n L}`, by which gradients of scales are multiplied.

    Sums over n values would move the scale faster than the weights (Esser et al., "Learned Step
    Size Quantization", ICLR 2020).

    Args:
        numel: n, values that the scale quantises.
        level: L, largest integer.
    """
    if torch.compiler.is_compiling():  # for a number of values that the graph leaves open
        factor: float = 1.0 / torch.sym_sqrt(torch.sym_max(numel, 1) * level)
        return factor
    return 1.0 / math.sqrt(max(numel, 1) * level)


def lsq_scale(scale: Tensor, numel: int, level: int) -> Tensor:
    """0-d ``scale`` whose gradient is multiplied by :func:`lsq_factor`."""
    if torch.compiler.is_compiling():
        # The same value and gradient: dynamo knows no function of an open number.
        fixed = scale.detach()
        return fixed + (scale - fixed) * lsq_factor(numel, level)
    out: Tensor = _ScaledGradient.apply(scale, lsq_factor(numel, level))
    return out


def positive_scale(scale: Tensor) -> Tensor:
    """``scale`` in float32, at least :data:`LEAST_SCALE`; for use without gradients.

    An optimiser's step may take a scale below zero, where no comparison with it means anything;
    the next ones can take it back, as the gradients of what it scales pass the guard.
    """
    return scale.float().clamp(min=LEAST_SCALE)


@torch.no_grad()
def initial_scale(
    x: Tensor, level: int = 1, signed: bool = True, valid: Tensor | None = None
) -> Tensor:
    r"""The scale that training starts from: :math:`2\,\mathrm{mean}|x| / \sqrt{L}`.

    Args:
        x: floats of any shape; without ``signed``, what is negative counts as 0.
        level: L.
        signed: whether the levels are on both sides of 0.
        valid: bool like ``x`` (or such that it broadcasts): values that count; None for all.

    Returns:
        0-d float32 tensor; 0 where nothing counts.
    """
    magnitude = x.float().abs() if signed else x.float().clamp(min=0)
    if valid is None:
        mean = magnitude.sum() / max(x.numel(), 1)
    else:
        valid = valid.expand_as(x)
        mean = torch.where(valid, magnitude, 0.0).sum() / valid.sum().clamp(min=1)
    return mean * (2.0 / math.sqrt(level))
