"""Inputs in 16-bit fixed point times binary weights: the first layer of a network."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.ops.conv_shape import Pair
from bitgnn.quantize.first_order import first_order
from bitgnn.quantize.images import HALVES, FramedConv, checked_shape, framed
from bitgnn.quantize.sign import Surrogate, binary_sign, row_scale

LEAST, GREATEST = -(2**15), 2**15 - 1
"""Of the 16-bit integers that inputs become."""
BYTE = 256
MOST_BYTE_PRODUCTS = 2**24 // BYTE
"""Most products of bytes and signs whose sum is exact in float32."""
STEP_EXPONENT = 64
"""Steps beyond 2 to the power of plus or minus this would leave the range of float32."""


def check_step(name: str, step: float) -> float:
    """``step`` if it is a power of two that float32 can divide by; else an error by ``name``."""
    if isinstance(step, bool) or not isinstance(step, int | float):
        raise TypeError(f"{name}: the step must be a number, got {type(step).__name__}")
    power = 0 < step < math.inf and math.frexp(step)[0] == 0.5
    if not (power and abs(math.log2(step)) <= STEP_EXPONENT):
        raise ValueError(
            f"{name}: the step must be a power of two from 2**-{STEP_EXPONENT} to "
            f"2**{STEP_EXPONENT}, got {step}"
        )
    return float(step)


class _FixedPoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, step: float) -> Tensor:
        scaled = x.float() / step
        q = torch.nan_to_num_(scaled, nan=0.0).round_()
        if ctx.needs_input_grad[0]:
            # NaN became 0, and no gradient is of use to it.
            ctx.save_for_backward((q >= LEAST) & (q <= GREATEST) & ~x.isnan())
        return q.clamp_(LEAST, GREATEST).mul_(step)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (inside,) = ctx.saved_tensors
        return grad * inside, None


def fixed_point(x: Tensor, step: float) -> Tensor:
    r"""``x`` in 16-bit fixed point: :math:`step \cdot \mathrm{clamp}(\mathrm{round}(x / step))`.

    The result is float32 like ``x``, floats or uint8 of any shape; ``step`` is a power of two.
    Rounding is to nearest, halves to even; the clamp is to [-32768, 32767]; NaN becomes 0. uint8 is
    taken as the same values in floats; steps below 1 / 128 clamp some of them, which is warned of.
    The gradient passes the rounding straight through; where the clamp acted, or of NaN, it is 0.

    Raises:
        TypeError: ``x`` holds neither floats nor uint8.
        ValueError: ``step`` is no power of two.
    """
    step = check_step("fixed_point", step)
    if x.dtype == torch.uint8 and step * GREATEST < BYTE - 1:
        warnings.warn(
            f"fixed_point: uint8 above {step * GREATEST:g} is clamped with step {step:g}; take a "
            "larger input_step, or pixels divided by 255",
            UserWarning,
            stacklevel=2,
        )
    if not (x.is_floating_point() or x.dtype == torch.uint8):
        raise TypeError(f"fixed_point: x must hold floats or uint8, got {x.dtype}")
    out: Tensor = _FixedPoint.apply(x, step)
    return out


class _FixedConv(FramedConv):
    """Convolution of multiples of a step with +-1 whose sums are exact: in float64, or by bytes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, step: float, *given: Any) -> Tensor:
        ctx.shape, ctx.groups, ctx.gradient_dtype = given
        ctx.save_for_backward(x, weight)
        stride, _, dilation = ctx.shape
        frame, inner = framed(x, ctx.shape)
        numbers = None, stride, inner, dilation, ctx.groups
        if x.device.type == "cpu" or weight[0].numel() > MOST_BYTE_PRODUCTS:
            out = functional.conv2d(frame.double(), weight.double(), *numbers)
            # Algorithms that transform their operands are off by fractions of a step.
            return out.div_(step).round_().float().mul_(step)
        # Float64 convolutions are slow on a GPU. Each byte of the integers is exact in TF32, and
        # so is its sum in float32.
        integers = (frame / step).contiguous(memory_format=torch.channels_last)
        high = (integers / BYTE).floor_()
        low = integers - BYTE * high
        weight = weight.contiguous(memory_format=torch.channels_last)
        sums = [functional.conv2d(part, weight, *numbers).round_() for part in (high, low)]
        out = sums[1].double().add_(sums[0], alpha=BYTE)
        return out.float().mul_(step)


def fixed_conv2d(
    x: Tensor,
    weight: Tensor,
    step: float,
    *,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    scale: bool = True,
    surrogate: Surrogate = "ste",
) -> Tensor:
    r"""Convolution of images in fixed point with binary weights.

    :math:`Y_o = m_o \cdot (step \cdot dot)`, :math:`dot = q \star \mathrm{sgn}(W_o)` of the 16-bit
    integers :math:`q` of :func:`fixed_point`: the exact integer rounded to float32, times the step,
    which is exact, times :math:`m_o = \mathrm{mean}|W_o|` with ``scale``. TF32 and autocast do not
    act on the values.

    ``x`` are floats or uint8, ``step`` is a power of two, and ``surrogate`` that of the weights'
    sign; all else is as in :func:`~bitgnn.quantize.binary_conv2d`.

    Returns:
        Float32 ``[N, O, out height, out width]``.

    Raises:
        TypeError: ``weight`` holds no floats, ``x`` neither floats nor uint8.
        ValueError: shapes do not fit together, or an option has none of its values.
    """
    name = "fixed_conv2d"
    shape = checked_shape(name, x, weight, stride, padding, dilation, groups)
    with torch.autocast(x.device.type, enabled=False):
        signs = binary_sign(weight, surrogate).float()
        gradient_dtype = x.dtype if x.dtype in HALVES else torch.float32
        numbers = step, shape, groups, gradient_dtype
        out: Tensor = _FixedConv.apply(fixed_point(x, step), signs, *numbers)
        if scale:
            out = row_scale(weight.flatten(1)).float().view(-1, 1, 1) * out
    return out


def fixed_linear(
    x: Tensor, weight: Tensor, step: float, *, scale: bool = True, surrogate: Surrogate = "ste"
) -> Tensor:
    """Product of rows in fixed point with binary weights: :func:`fixed_conv2d` of single pixels.

    ``x`` is ``[*, K]`` and ``weight`` ``[O, K]``, the result float32 ``[*, O]``; all else is as
    there.
    """
    with torch.autocast(x.device.type, enabled=False):
        signs = binary_sign(weight, surrogate)
        # Float64 holds every sum, and a product of matrices transforms nothing.
        out = functional.linear(fixed_point(x, step).double(), signs.double()).float()
        return row_scale(weight).float() * out if scale else out
