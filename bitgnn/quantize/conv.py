"""The binary convolution with its backward rule: exact integers in every forward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.grad import conv2d_input, conv2d_weight

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.ops._conv_shape import ConvShape, Pair, conv_shape
from bitgnn.quantize.scale import row_scale
from bitgnn.quantize.sign import Surrogate, binary_sign

__all__ = ["binary_conv2d"]


class _SignConv(torch.autograd.Function):
    """Convolution of +-1 tensors in float32, whose sums are exact whatever adds them up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, shape: ConvShape, groups: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.shape, ctx.groups = shape, groups
        if x.device.type == "cpu":
            words = torch.ops.bitgnn.pack_images(x), torch.ops.bitgnn.pack_images(weight)
            dot: Tensor = torch.ops.bitgnn.conv_bbf(*words, x.size(1), *shape, groups)
            return dot.permute(0, 3, 1, 2)
        stride, _, dilation = shape
        # Algorithms that transform their operands are off by fractions.
        return functional.conv2d(
            _padded(x, shape), weight, None, stride, 0, dilation, groups
        ).round_()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        stride, (top, _, left, _), dilation = ctx.shape
        padded = _padded(x, ctx.shape)
        numbers = (grad, stride, 0, dilation, ctx.groups)
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            whole = conv2d_input(padded.shape, weight, *numbers)
            grad_x = whole[:, :, top : top + x.size(2), left : left + x.size(3)]
        if ctx.needs_input_grad[1]:
            grad_weight = conv2d_weight(padded, weight.shape, *numbers)
        return grad_x, grad_weight, None, None


def _padded(x: Tensor, shape: ConvShape) -> Tensor:
    top, bottom, left, right = shape.padding
    return functional.pad(x, (left, right, top, bottom)) if any(shape.padding) else x


def binary_conv2d(
    x: Tensor,
    weight: Tensor,
    *,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    scale: bool = True,
    surrogate: Surrogate = "ste",
) -> Tensor:
    r"""Convolution of binarised activations and weights, straight-through gradients behind it.

    Forward: :math:`Y_o = m_o \cdot (\mathrm{sgn}(X) \star \mathrm{sgn}(W_o))` with
    :math:`m_o = \mathrm{mean}|W_o|`, or 1 without ``scale``. The sums are exact integers and taps
    outside the image add nothing: bit for bit what :func:`bitgnn.ops.conv.bbf` gives.

    Backward: through both signs by ``surrogate`` (:func:`~bitgnn.quantize.surrogate_slope`), and
    through the scale by its derivative :math:`\mathrm{sgn}(W) / K`.

    Args:
        x: ``[N, C, H, W]`` float activations (latent, or already +1/-1); NaN counts as -1.
        weight: ``[O, C / groups, kh, kw]`` float latent weights.
        stride: number or pair, at least 1.
        padding: number or pair, ``"valid"`` or ``"same"``.
        dilation: number or pair, at least 1.
        groups: divides C and O.
        scale: multiply by the mean magnitude of each output's weights.
        surrogate: slope in place of the sign's derivative.

    Returns:
        ``[N, O, out height, out width]`` of the dtype of ``x``, in channels_last on the CPU.

    Raises:
        TypeError: ``x`` or ``weight`` holds no floats.
        ValueError: shapes do not fit together, the kernel is larger than the padded image, or an
            option has none of its values.
    """
    name = "binary_conv2d"
    if not (x.is_floating_point() and weight.is_floating_point()):
        raise TypeError(f"{name}: x and weight must hold floats, got {x.dtype} and {weight.dtype}")
    fits = x.dim() == 4 and weight.dim() == 4 and groups >= 1 and weight.numel() > 0
    if not (fits and x.size(1) == groups * weight.size(1) and weight.size(0) % groups == 0):
        raise ValueError(
            f"{name}: x must be [N, C, H, W] and weight [O, C / groups, kh, kw] with groups "
            f"dividing O, got {list(x.shape)} and {list(weight.shape)} with {groups} groups"
        )
    shape = conv_shape(name, x.shape[2:], weight.shape[2:], stride, padding, dilation)
    # Autocast would round the exact sums of signs.
    with torch.autocast(x.device.type, enabled=False):
        signs = binary_sign(x, surrogate).float(), binary_sign(weight, surrogate).float()
        out: Tensor = _SignConv.apply(*signs, shape, groups)
        if scale:
            out = row_scale(weight.flatten(1)).float().view(-1, 1, 1) * out
    return out.to(x.dtype)
