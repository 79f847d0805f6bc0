"""Signs of weights around their mean, and their one scale."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn._checks import check_type, name_type

__all__ = ["shifted_sign"]


class _ShiftedSign(torch.autograd.Function):
    @staticmethod
    def forward(weight: Tensor) -> tuple[Tensor, Tensor]:
        signs, scale = torch.ops.bitgnn.shift_signs(weight.float())
        return signs, scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.dtype = inputs[0].dtype
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Any) -> Tensor | None:
        if grad is None:
            return None
        (scale,) = ctx.saved_tensors
        passed = grad / (scale + (scale <= 0))
        return (passed - passed.mean()).to(ctx.dtype)


def shifted_sign(weight: Tensor) -> tuple[Tensor, Tensor]:
    r""":math:`\mathrm{sgn}(W - \mu)` and :math:`s_W = \mathrm{mean}|W - \mu|`, one for a layer.

    :math:`\mu` is the mean of all weights. The gradient passes :math:`W_b = s_W\,\mathrm{sgn}`
    straight through to :math:`W - \mu`, the scale taken as a constant: that of the signs divided by
    the scale, less its mean.

    Source: Ding et al., "BWTA: Accurate and Efficient Binarized Transformer by Algorithm-Hardware
    Co-design".

    Args:
        weight: floats of any shape.

    Returns:
        Float32 signs +1 and -1 like ``weight`` (what equals the mean gives +1, NaN -1), and the
        0-d float32 scale.

    Raises:
        TypeError: ``weight`` holds no floats.
    """
    check_type(
        isinstance(weight, Tensor) and weight.is_floating_point(),
        lambda: f"shifted_sign: weight must be a float tensor, got {name_type(weight)}",
    )
    signs, scale = _ShiftedSign.apply(weight)
    return signs, scale
