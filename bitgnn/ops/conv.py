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

from typing import NamedTuple

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.bits.images import BitImages
from bitgnn.ops import _arguments

__all__ = ["Pair", "bbb", "bbf", "pair", "resolve_padding"]

Pair = int | tuple[int, int]
"""A number for both axes, or (height, width)."""

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


class _Shape(NamedTuple):
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]


def pair(function: str, name: str, value: Pair, least: int) -> tuple[int, int]:
    """A number or pair as a pair.

    Raises:
        TypeError: it is neither.
        ValueError: a number is below ``least``.
    """
    both = value if isinstance(value, tuple | list) else (value, value)
    check_type(
        len(both) == 2 and all(isinstance(v, int) and not isinstance(v, bool) for v in both),
        lambda: f"{function}: {name} must be an int or a pair of them, got {value!r}",
    )
    check_value(
        min(both) >= least, lambda: f"{function}: {name} must be at least {least}, got {value!r}"
    )
    return both[0], both[1]


def resolve_padding(
    function: str,
    padding: Pair | str,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> tuple[int, int, int, int]:
    """Padding as top, bottom, left, right; "same" pads an odd total more at the end, as torch does.

    Raises:
        TypeError: the padding is neither numbers nor a string.
        ValueError: a number is negative, or the string means nothing with this stride.
    """
    if not isinstance(padding, str):
        height, width = pair(function, "padding", padding, 0)
        return height, height, width, width
    check_value(
        padding == "valid" or (padding == "same" and stride == (1, 1)),
        lambda: (
            f"{function}: padding must be numbers, 'valid', or 'same' with stride 1, got "
            f"{padding!r} with stride {stride}"
        ),
    )
    if padding == "valid":
        return 0, 0, 0, 0
    height, width = (d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
    return height // 2, height - height // 2, width // 2, width - width // 2


def _checked(
    name: str,
    x: BitImages,
    w: BitImages,
    stride: Pair,
    padding: Pair | str,
    dilation: Pair,
    groups: int,
) -> _Shape:
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
    outputs, height, width = w.words.shape[:3]
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
    strides = pair(name, "stride", stride, 1)
    dilations = pair(name, "dilation", dilation, 1)
    sides = resolve_padding(name, padding, (height, width), strides, dilations)
    padded = [x.words.size(1) + sum(sides[:2]), x.words.size(2) + sum(sides[2:])]
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, (height, width), strict=True)]
    check_value(
        height >= 1 and width >= 1 and reach[0] <= padded[0] and reach[1] <= padded[1],
        lambda: (
            f"{name}: the kernel of w must be no larger than the padded image, {padded}, got "
            f"{reach} with dilation {dilation}"
        ),
    )
    return _Shape(strides, sides, dilations)


def _check_images(function: str, name: str, value: BitImages) -> None:
    check_type(
        isinstance(value, BitImages),
        lambda: f"{function}: {name} must be BitImages, got {name_type(value)}",
    )
