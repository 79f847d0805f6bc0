"""Numbers of a convolution: strides, padding and dilation in full, checked against the image."""

from collections.abc import Sequence
from typing import NamedTuple

from bitgnn._checks import check_type, check_value
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
