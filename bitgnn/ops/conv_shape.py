"""Operands and numbers of a convolution, checked against each other and written out in full."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.bits.tensor import BitImages
from bitgnn.ops import _arguments
from bitgnn.ops.reference.bit_pool import window_places

Pair = int | tuple[int, int]
"""A number for both axes, or (height, width)."""


class ConvShape(NamedTuple):
    """Numbers of a convolution as the operators take them; padding is top, bottom, left, right."""

    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]

    def output_size(self, image: Sequence[int], kernel: Sequence[int]) -> tuple[int, int]:
        """Height and width of the result."""
        return window_places(image, kernel, *self)


def conv_shape(
    function: str,
    image: Sequence[int],
    kernel: Sequence[int],
    stride: Pair,
    padding: Pair | str,
    dilation: Pair,
) -> ConvShape:
    """Check the numbers of a convolution and write them out.

    Args:
        function: name for messages.
        image: height and width.
        kernel: height and width.
        stride: at least 1.
        padding: at least 0, "valid" or "same"; "same" pads an odd total more at the end, as torch
            does.
        dilation: at least 1.

    Raises:
        TypeError: numbers are no ints.
        ValueError: a number is too small, "same" has another stride than 1, or the kernel is
            larger than the padded image.
    """
    strides = whole_pair(function, "stride", stride, 1)
    dilations = whole_pair(function, "dilation", dilation, 1)
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    if isinstance(padding, str):
        check_value(
            padding == "valid" or (padding == "same" and strides == (1, 1)),
            lambda: (
                f"{function}: padding must be numbers, 'valid', or 'same' with stride 1, got "
                f"{padding!r} with stride {strides}"
            ),
        )
        total = [r - 1 if padding == "same" else 0 for r in reach]
        sides = total[0] // 2, total[0] - total[0] // 2, total[1] // 2, total[1] - total[1] // 2
    else:
        height, width = whole_pair(function, "padding", padding, 0)
        sides = height, height, width, width
    padded = [image[0] + sides[0] + sides[1], image[1] + sides[2] + sides[3]]
    check_value(
        min(kernel) >= 1 and reach[0] <= padded[0] and reach[1] <= padded[1],
        lambda: (
            f"{function}: the kernel must be no larger than the padded image, {padded}, got "
            f"{list(kernel)} with dilation {list(dilations)}"
        ),
    )
    return ConvShape(strides, sides, dilations)


def whole_pair(function: str, name: str, value: Pair, least: int) -> tuple[int, int]:
    """Height and width of what is given as one or both; ints that are at least ``least``."""
    both = value if isinstance(value, tuple | list) else (value, value)
    check_type(
        len(both) == 2 and all(isinstance(v, int) and not isinstance(v, bool) for v in both),
        lambda: f"{function}: {name} must be an int or a pair of them, got {value!r}",
    )
    check_value(
        min(both) >= least, lambda: f"{function}: {name} must be at least {least}, got {value!r}"
    )
    return both[0], both[1]


def check_images(function: str, name: str, value: BitImages) -> None:
    """Require packed images."""
    check_type(
        isinstance(value, BitImages),
        lambda: f"{function}: {name} must be BitImages, got {name_type(value)}",
    )


def check_operands(
    function: str,
    x: BitImages,
    w: BitImages,
    stride: Pair,
    padding: Pair | str,
    dilation: Pair,
    groups: int,
) -> ConvShape:
    """Check operands and numbers; what the operator takes for them."""
    check_images(function, "x", x)
    check_images(function, "w", w)
    _arguments.same_device(function, "w", w.device, x.device)
    check_value(x.scale is None, lambda: f"{function}: x must hold no scale, got one of each image")
    check_type(
        isinstance(groups, int) and not isinstance(groups, bool),
        lambda: f"{function}: groups must be an int, got {name_type(groups)}",
    )
    outputs = w.words.size(0)
    check_value(
        groups >= 1 and x.channels % groups == 0 and outputs % groups == 0 and outputs > 0,
        lambda: (
            f"{function}: groups must divide the channels of x, {x.channels}, and the outputs of "
            f"w, {outputs}, got {groups}"
        ),
    )
    check_value(
        w.channels == x.channels // groups,
        lambda: (
            f"{function}: w must hold {x.channels // groups} channels for {x.channels} of x in "
            f"{groups} groups, got {w.channels}"
        ),
    )
    return conv_shape(function, x.words.shape[1:3], w.words.shape[1:3], stride, padding, dilation)


def check_prepared(function: str, prepared: Tensor | None, w: BitImages) -> None:
    """Require None or what ``prepare`` makes of kernels of this shape."""
    if prepared is None:
        return
    outputs, height, width, _ = w.words.shape
    check_type(
        isinstance(prepared, Tensor) and prepared.dtype == torch.int32,
        lambda: f"{function}: prepared must be a torch.int32 tensor, got {name_type(prepared)}",
    )
    check_value(
        prepared.shape == (outputs, height * width + 2),
        lambda: (
            f"{function}: prepared must have shape [{outputs}, {height * width + 2}] for "
            f"{outputs} kernels of {height} x {width}, got {list(prepared.shape)}"
        ),
    )
    _arguments.same_device(function, "prepared", prepared.device, w.device)
