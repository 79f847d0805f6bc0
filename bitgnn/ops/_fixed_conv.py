"""The first layer of a network: images in fixed point times weights of +-1.

With ``q = clamp(round(x / step), -32768, 32767)``, halves to even and NaN as 0, ``dot`` is the sum
of ``q * w`` over the taps inside the image, an exact integer, and ``v = scale[o] * (step * dot) +
bias[o]``, every step rounded to float32. uint8 images are taken as they are, with step 1. A fully
connected first layer is a convolution of images of 1 x 1 with a channel for each feature.
"""

import math

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.bits.tensor import BitImages
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops.conv_shape import ConvShape, Pair, check_images, check_prepared, conv_shape

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
MOST_WEIGHTS = 65535
"""Weights of an output whose sums of 16-bit integers fit 32 bits."""


def fbb(
    x: Tensor,
    w: BitImages,
    step: float,
    *,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    scale: bool = True,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    prepared: Tensor | None = None,
) -> BitImages:
    """Bits of ``v >= threshold[o]`` (0 without one), turned where ``flip``.

    With neither bias nor threshold the scale, which is positive, is never computed.

    Args:
        x: float32, float16, bfloat16 or uint8 ``[N, C, H, W]``; contiguous and channels_last are
            read in place.
        w: kernels ``[O, C, kh, kw]`` of at most 65 535 weights each.
        step: a power of two, the unit of the fixed point; 1 for uint8.
        stride: as in :mod:`bitgnn.ops.conv`, and so on up to ``flip``.
        padding: number, pair or name.
        dilation: number or pair.
        scale: multiply by the scale of ``w``, if any.
        bias: float32 ``[O]``.
        threshold: float32 ``[O]``.
        flip: bool ``[O]``.
        prepared: from ``prepare(w, step=step, ...)``.

    Returns:
        Images ``[N, O, out height, out width]``.

    Raises:
        TypeError: a type or dtype does not fit.
        ValueError: a shape, device or number does not fit.
    """
    name = "conv.fbb"
    shape = _checked(name, x, w, step, stride, padding, dilation)
    outputs = w.words.size(0)
    check_prepared(name, prepared, w)
    w_scale = w.scale if scale else None
    words = call(
        name, "conv_fbb", x, w.words, step, *shape, w_scale, bias, threshold, flip, prepared
    )
    return BitImages._trusted(words, outputs)


def fbf(
    x: Tensor,
    w: BitImages,
    step: float,
    *,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    scale: bool = True,
    bias: Tensor | None = None,
    integer: bool = False,
) -> Tensor:
    """``v`` in float32, or ``dot`` in int32 with ``integer``; arguments as in :func:`fbb`.

    Returns:
        ``[N, O, out height, out width]`` in the channels_last memory format.
    """
    name = "conv.fbf"
    shape = _checked(name, x, w, step, stride, padding, dilation)
    _arguments.no_bias_with_integer(name, bias, integer)
    w_scale = w.scale if scale and not integer else None
    result: Tensor = call(name, "conv_fbf", x, w.words, step, *shape, w_scale, bias, integer)
    return result.permute(0, 3, 1, 2)


def check_step(function: str, step: float) -> None:
    """Require a power of two in the range of float32."""
    check_type(
        isinstance(step, int | float) and not isinstance(step, bool),
        lambda: f"{function}: step must be a float, got {name_type(step)}",
    )
    check_value(
        math.frexp(step)[0] == 0.5 and -100 < math.frexp(step)[1] < 100,
        lambda: f"{function}: step must be a power of two between 2^-100 and 2^98, got {step}",
    )


def _checked(
    function: str,
    x: Tensor,
    w: BitImages,
    step: float,
    stride: Pair,
    padding: Pair | str,
    dilation: Pair,
) -> ConvShape:
    check_type(
        isinstance(x, Tensor) and x.dtype in _DTYPES and x.layout == torch.strided,
        lambda: (
            f"{function}: x must be dense float32, float16, bfloat16 or uint8, got {name_type(x)}"
        ),
    )
    check_images(function, "w", w)
    check_value(
        x.dim() == 4 and x.size(1) == w.channels,
        lambda: f"{function}: x must have shape [N, {w.channels}, H, W], got {list(x.shape)}",
    )
    _arguments.same_device(function, "w", w.device, x.device)
    check_step(function, step)
    check_value(
        x.dtype != torch.uint8 or step == 1,
        lambda: f"{function}: step must be 1 for uint8 images, got {step}",
    )
    outputs, height, width, _ = w.words.shape
    check_value(outputs > 0, lambda: f"{function}: w must have outputs, got none")
    check_value(
        w.channels * height * width <= MOST_WEIGHTS,
        lambda: (
            f"{function}: w must have at most {MOST_WEIGHTS} weights an output, got "
            f"{w.channels * height * width}"
        ),
    )
    return conv_shape(function, x.shape[2:4], (height, width), stride, padding, dilation)
