"""Operands of products of integers: activations rounded by a learnt scale, and their gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bitgnn._interpreter import with_signature
from bitgnn.quantize.learnt_scale import lsq_factor, positive_scale
from bitgnn.quantize.levels import clipped_gradients, rounded

__all__ = ["Operand", "Rounding", "operand_gradients", "quantised"]


class Rounding(NamedTuple):
    """Which integers activations become.

    Attributes:
        lowest: of them.
        highest: of them.
        sign: signs of the activations, not what they are rounded to.
    """

    lowest: int
    highest: int
    sign: bool


class Operand(NamedTuple):
    """An operand for a function that gives all gradients of a product itself.

    Attributes:
        x: the activations.
        parameter: the learnt scale.
        q: integers of ``x``, without gradients.
        scale: guarded value of ``parameter``, without gradients.
        rounding: which integers; None where ``q`` is ``x`` and nothing is scaled.
    """

    x: Tensor
    parameter: Tensor
    q: Tensor
    scale: Tensor
    rounding: Rounding | None


class _Quantised(torch.autograd.Function):
    @staticmethod
    @with_signature
    def forward(x: Tensor, parameter: Tensor, rounding: Rounding) -> tuple[Tensor, Tensor]:
        lowest, highest, sign = rounding
        scale = positive_scale(parameter)
        if sign:
            return torch.where(x >= 0, 1.0, -1.0), scale
        return rounded(x, scale, lowest, highest), scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, parameter, (ctx.lowest, ctx.highest, _) = inputs
        ctx.dtype = parameter.dtype
        ctx.save_for_backward(x, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_scale: Tensor) -> tuple[Tensor, Tensor, None]:
        x, scale = ctx.saved_tensors
        grad_x, clipped = clipped_gradients(grad, x, scale, ctx.lowest, ctx.highest)
        factor = lsq_factor(x.numel(), ctx.highest)
        return grad_x, ((clipped + grad_scale) * factor).to(ctx.dtype), None


def quantised(x: Tensor, parameter: Tensor, rounding: Rounding) -> tuple[Tensor, Tensor]:
    """Integers of activations, and the guarded scale.

    The gradients of the integers are those of ``x / scale`` clipped; with the product of both
    formed by the caller they add up to LSQ's, see :func:`bitgnn.quantize.levels`.

    Args:
        x: floats of any shape; NaN becomes 0.
        parameter: 0-d, the learnt scale.
        rounding: which integers.

    Returns:
        Float32 tensor like ``x``, and 0-d float32.
    """
    if not torch.is_grad_enabled():  # calling a function of autograd takes longer than the rest
        return _Quantised.forward(x, parameter, rounding)
    q, scale = _Quantised.apply(x, parameter, rounding)
    return q, scale


def operand_gradients(
    grad: Tensor, x: Tensor, scale: Tensor, gain: Tensor, rounding: Rounding | None
) -> tuple[Tensor, Tensor | None]:
    """LSQ's gradients of an operand.

    Args:
        grad: of ``gain * scale * q``, float32.
        x: of the :class:`Operand`, and so on.
        scale: float32.
        gain: what the rest of the product multiplies ``scale * q`` by, 0-d float32.
        rounding: of the operand.

    Returns:
        Gradients of ``x``, and of the learnt scale where there is one.
    """
    if rounding is None:
        return (gain * grad).to(x.dtype), None
    lowest, highest, sign = rounding
    return clipped_gradients(grad, x, scale, lowest, highest, gain, sign)
