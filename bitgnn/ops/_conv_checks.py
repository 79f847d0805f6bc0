"""Checks that the operators on images share; messages name function, argument, found, expected."""

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.bits.images import BitImages
from bitgnn.ops import _arguments
from bitgnn.ops._conv_shape import ConvShape, Pair, conv_shape


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
