r"""Binary convolution: packed images times packed kernels, to bits or values.

``x`` is :class:`~bitgnn.bits.BitImages` ``[N, C, H, W]``, ``w`` ``[O, C / groups, kh, kw]`` as in
``torch.nn.Conv2d``. ``dot`` is the sum of the products of +-1 over the taps of the kernel inside
the image, an exact integer: taps outside are left out, as torch's convolution does with zeros
around the image, and do not count as -1.

- ``stride``, ``dilation``: a number or a pair (height, width), at least 1.
- ``padding``: a number, a pair (height, width), or ``"valid"`` or ``"same"`` (stride 1) with
  torch's meaning.
- ``groups`` divides C and O; groups of a multiple of 32 channels are read in place.
- ``scale``: multiply by the scale ``[O]`` that ``w`` holds, if any; ``x`` must hold none.
- ``bias`` and ``threshold`` are float32 ``[O]``, ``flip`` is bool ``[O]``.

Every function raises TypeError (type, dtype) or ValueError (shape, device, value) before any
kernel runs. Convolution has kernels for the CPU alone: operands elsewhere are refused. Results
carry no gradient; :class:`bitgnn.nn.BinaryConv2d` is the trainable layer. Source: Li and Su,
"Accelerating Binarized Neural Networks via Bit-Tensor-Cores in Turing GPUs", TPDS 2020.
"""

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.bits.images import BitImages
from bitgnn.ops import _arguments
from bitgnn.ops._conv_shape import ConvShape, Pair, conv_shape

__all__ = ["bbb", "bbf"]

_OPS = torch.ops.bitgnn


def bbb(
    x: BitImages,
    w: BitImages,
    *,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    scale: bool = True,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
) -> BitImages:
    """Bits of ``scale[o] * dot + bias[o] >= threshold[o]`` (0 without one), turned where ``flip``.

    With neither bias nor threshold the scale, which is positive, is never computed.

    Returns:
        Images ``[N, O, out height, out width]``.
    """
    name = "conv.bbb"
    shape = _checked(name, x, w, stride, padding, dilation, groups)
    outputs = w.words.size(0)
    _arguments.vector(name, "bias", bias, outputs, x.device)
    _arguments.vector(name, "threshold", threshold, outputs, x.device)
    _arguments.vector(name, "flip", flip, outputs, x.device, torch.bool)
    w_scale = w.scale if scale else None
    words = _OPS.conv_bbb(
        x.words, w.words, x.channels, *shape, groups, w_scale, bias, threshold, flip
    )
    return BitImages._trusted(words, outputs)


def bbf(
    x: BitImages,
    w: BitImages,
    *,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    scale: bool = True,
    bias: Tensor | None = None,
    integer: bool = False,
) -> Tensor:
    """``scale[o] * dot + bias[o]`` in float32, or ``dot`` in int32 with ``integer``.

    Returns:
        ``[N, O, out height, out width]`` in the channels_last memory format.
    """
    name = "conv.bbf"
    shape = _checked(name, x, w, stride, padding, dilation, groups)
    _arguments.vector(name, "bias", bias, w.words.size(0), x.device)
    _arguments.no_bias_with_integer(name, bias, integer)
    w_scale = w.scale if scale and not integer else None
    result: Tensor = _OPS.conv_bbf(
        x.words, w.words, x.channels, *shape, groups, w_scale, bias, integer
    )
    return result.permute(0, 3, 1, 2)


def _checked(
    name: str,
    x: BitImages,
    w: BitImages,
    stride: Pair,
    padding: Pair | str,
    dilation: Pair,
    groups: int,
) -> ConvShape:
    """Check operands and numbers; what the operator takes for them."""
    _check_images(name, "x", x)
    _check_images(name, "w", w)
    check_value(
        x.device.type in ("cpu", "meta"),
        lambda: f"{name}: x must be on the CPU, which alone has kernels, got {x.device}",
    )
    _arguments.same_device(name, "w", w.device, x.device)
    check_value(x.scale is None, lambda: f"{name}: x must hold no scale, got one of each image")
    check_type(
        isinstance(groups, int) and not isinstance(groups, bool),
        lambda: f"{name}: groups must be an int, got {name_type(groups)}",
    )
    outputs = w.words.size(0)
    check_value(
        groups >= 1 and x.channels % groups == 0 and outputs % groups == 0 and outputs > 0,
        lambda: (
            f"{name}: groups must divide the channels of x, {x.channels}, and the outputs of w, "
            f"{outputs}, got {groups}"
        ),
    )
    check_value(
        w.channels == x.channels // groups,
        lambda: (
            f"{name}: w must hold {x.channels // groups} channels for {x.channels} of x in "
            f"{groups} groups, got {w.channels}"
        ),
    )
    return conv_shape(name, x.words.shape[1:3], w.words.shape[1:3], stride, padding, dilation)


def _check_images(function: str, name: str, value: BitImages) -> None:
    check_type(
        isinstance(value, BitImages),
        lambda: f"{function}: {name} must be BitImages, got {name_type(value)}",
    )
