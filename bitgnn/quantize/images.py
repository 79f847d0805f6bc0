"""The binary convolution with its backward rule, and images as grey and as local patterns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import handle_torch_function, has_torch_function_unary

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.ops.conv_shape import ConvShape, Pair, conv_shape
from bitgnn.quantize.first_order import first_order
from bitgnn.quantize.sign import Surrogate, binary_sign, row_scale

HALVES = (torch.float16, torch.bfloat16)
"""Types that gradients are computed in where activations have them."""
HALF_INTEGERS = 2048
"""Integers up to this magnitude are exact in float16."""
COLOURS = 3
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in grey (ITU-R BT.601)."""
RING = ((0, 0), (1, 2), (2, 0))
"""Row and column, in a 3x3 window, of every third pixel clockwise from the top left."""


class FramedConv(torch.autograd.Function):
    """The gradients of a convolution of :func:`framed` images; forms of it have their forward.

    It leaves both operands saved in ``ctx``, ``shape``, ``groups`` and ``gradient_dtype``.
    """

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Of images and weights, where they are asked for."""
        x, weight = (saved.to(ctx.gradient_dtype) for saved in ctx.saved_tensors)
        stride, padding, dilation = ctx.shape
        frame, inner = framed(x, ctx.shape)
        grad_x, grad_weight, _ = torch.ops.aten.convolution_backward(
            grad.to(ctx.gradient_dtype), frame, weight, None, stride, inner, dilation,
            False, (0, 0), ctx.groups, (*ctx.needs_input_grad[:2], False),
        )  # fmt: skip
        if grad_x is not None and frame is not x:
            top, left = padding[0], padding[2]
            grad_x = grad_x[:, :, top : top + x.size(2), left : left + x.size(3)]
        return grad_x, grad_weight, *(None for _ in ctx.needs_input_grad[2:])


class _SignConv(FramedConv):
    """Convolution of +-1 tensors: exact integers, rounded only where the caller wants a half."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, shape: ConvShape, groups: int, dtype: torch.dtype
    ) -> Tensor:
        ctx.shape, ctx.groups = shape, groups
        x_dtype = x.dtype
        ctx.gradient_dtype = x_dtype if x_dtype in HALVES else torch.float32
        x, weight = x.to(dtype), weight.to(dtype)
        ctx.save_for_backward(x, weight)
        if x.device.type == "cpu":
            words = torch.ops.bitgnn.pack_images(x), torch.ops.bitgnn.pack_images(weight)
            dot: Tensor = torch.ops.bitgnn.conv_bbf(*words, x.size(1), *shape, groups)
            return dot.permute(0, 3, 1, 2)
        stride, _, dilation = shape
        # With separate channels cuDNN may transform its operands, which float16 and TF32 round.
        frame, (top, left) = framed(x.contiguous(memory_format=torch.channels_last), shape)
        weight = weight.contiguous(memory_format=torch.channels_last)
        out = functional.conv2d(frame, weight, None, stride, (top, left), dilation, groups)
        if dtype in HALVES and dtype == x_dtype:
            return out
        # In float32, since the gradient comes in the type of the result. Algorithms that transform
        # their operands are off by fractions.
        return out.float().round_()


def checked_shape(
    name: str,
    x: Tensor,
    weight: Tensor,
    stride: Pair,
    padding: Pair | str,
    dilation: Pair,
    groups: int,
) -> ConvShape:
    """The shape of a convolution of images and weights, or a ValueError where they do not fit."""
    fits = x.dim() == 4 and weight.dim() == 4 and groups >= 1 and weight.numel() > 0
    if not (fits and x.size(1) == groups * weight.size(1) and weight.size(0) % groups == 0):
        raise ValueError(
            f"{name}: x must be [N, C, H, W] and weight [O, C / groups, kh, kw] with groups "
            f"dividing O, got {list(x.shape)} and {list(weight.shape)} with {groups} groups"
        )
    return conv_shape(name, x.shape[2:], weight.shape[2:], stride, padding, dilation)


def framed(x: Tensor, shape: ConvShape) -> tuple[Tensor, tuple[int, int]]:
    """The image, padded here if its sides differ, and the padding left to torch."""
    top, bottom, left, right = shape.padding
    if top == bottom and left == right:
        return x, (top, left)
    return functional.pad(x, (left, right, top, bottom)), (0, 0)


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
    r"""Convolution of binarised activations and weights, with straight-through gradients.

    Forward: :math:`Y_o = m_o \cdot (\mathrm{sgn}(X) \star \mathrm{sgn}(W_o))` with
    :math:`m_o = \mathrm{mean}|W_o|`, or 1 without ``scale``. The sums are exact integers and taps
    outside the image add nothing: bit for bit what :func:`bitgnn.ops.conv.bbf` gives.

    On a GPU the convolution runs on float16 operands where float16 holds every sum, else on
    float32 ones, whose signs TF32 holds too. Training with ``x`` of a half type is fastest: sums
    come out rounded to it, and gradients are computed in it.

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
    shape = checked_shape(name, x, weight, stride, padding, dilation, groups)
    # The cheapest type whose convolution of signs is rounded as exact sums would be.
    dtype = torch.float32
    if x.device.type != "cpu" and x.dtype in HALVES and not scale:
        dtype = x.dtype
    elif x.device.type != "cpu" and weight[0].numel() <= HALF_INTEGERS:
        dtype = torch.float16
    # Autocast would round the exact sums of signs.
    with torch.autocast(x.device.type, enabled=False):
        signs = binary_sign(x, surrogate), binary_sign(weight, surrogate)
        out: Tensor = _SignConv.apply(*signs, shape, groups, dtype)
        if scale:
            out = row_scale(weight.flatten(1)).float().view(-1, 1, 1) * out
    return out.to(x.dtype)


def grey(x: Tensor) -> Tensor:
    """The luma ``[N, 1, H, W]`` of red, green and blue floats ``[N, 3, H, W]`` (ITU-R BT.601)."""
    if has_torch_function_unary(x):  # torch.fx keeps it whole
        out: Tensor = handle_torch_function(grey, (x,), x)
        return out
    red, green, blue = (x[:, c : c + 1] * weight for c, weight in enumerate(LUMA))
    return red + green + blue


def local_binary_patterns(x: Tensor) -> Tensor:
    """Three of a pixel's neighbours in grey, as +1 where they exceed it and -1 elsewhere.

    The three are every third of the ring of eight, clockwise from the top left; at the border the
    image continues as it ends. Both sides are floats ``[N, 3, H, W]``; no gradient flows.

    Source: Ojala et al., "Multiresolution Gray-Scale and Rotation Invariant Texture Classification
    with Local Binary Patterns", TPAMI 2002, in the form of BinCNN.
    """
    if has_torch_function_unary(x):
        out: Tensor = handle_torch_function(local_binary_patterns, (x,), x)
        return out
    centre = grey(x)
    height, width = x.shape[2], x.shape[3]
    frame = functional.pad(centre, (1, 1, 1, 1), mode="replicate")
    ring = [frame[:, :, i : i + height, j : j + width] for i, j in RING]
    return 2 * (torch.cat(ring, 1) > centre).to(x.dtype) - 1
