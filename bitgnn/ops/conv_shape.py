"""Operands and numbers of convolutions, checked against each other and written out in full."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits.tensor import BitImages
from bitgnn.ops import _arguments
from bitgnn.ops.reference.conv import image_words, window_places

FIRST_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
"""Dtypes of images of a first layer."""
MOST_WEIGHTS = 65535
"""Weights of an output whose sums of 16-bit integers fit 32 bits."""

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
    """Check the numbers of a convolution and write them out; images and kernels as (height, width).

    "same" gives ``ceil(size / stride)`` pixels, as TensorFlow has it; an odd total of padding is
    more at the end, as torch has it with stride 1.
    """
    strides = whole_pair(function, "stride", stride, 1)
    dilations = whole_pair(function, "dilation", dilation, 1)
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    if isinstance(padding, str):
        if padding not in ("valid", "same"):
            raise ValueError(
                f"{function}: padding must be numbers, 'valid' or 'same', got {padding!r}"
            )
        wanted = [(-(-size // s) - 1) * s for size, s in zip(image, strides, strict=True)]
        total = [
            max(0, last + r - size) if padding == "same" else 0
            for last, r, size in zip(wanted, reach, image, strict=True)
        ]
        sides = total[0] // 2, total[0] - total[0] // 2, total[1] // 2, total[1] - total[1] // 2
    else:
        height, width = whole_pair(function, "padding", padding, 0)
        sides = height, height, width, width
    padded = [image[0] + sides[0] + sides[1], image[1] + sides[2] + sides[3]]
    if not (min(kernel) >= 1 and reach[0] <= padded[0] and reach[1] <= padded[1]):
        raise ValueError(
            f"{function}: the kernel must be no larger than the padded image, {padded}, got "
            f"{list(kernel)} with dilation {list(dilations)}"
        )
    return ConvShape(strides, sides, dilations)


def whole_pair(function: str, name: str, value: Pair, least: int) -> tuple[int, int]:
    """Height and width given as one int or two, each at least ``least``."""
    both = value if isinstance(value, tuple | list) else (value, value)
    if not (len(both) == 2 and all(isinstance(v, int) and not isinstance(v, bool) for v in both)):
        raise TypeError(f"{function}: {name} must be an int or a pair of them, got {value!r}")
    if min(both) < least:
        raise ValueError(f"{function}: {name} must be at least {least}, got {value!r}")
    return both[0], both[1]


def check_images(function: str, name: str, value: BitImages) -> None:
    """Require packed images."""
    if not isinstance(value, BitImages):
        raise TypeError(f"{function}: {name} must be BitImages, got {name_type(value)}")


def check_operands(
    function: str,
    x: BitImages,
    w: BitImages,
    stride: Pair,
    padding: Pair | str,
    dilation: Pair,
    groups: int,
) -> ConvShape:
    """Check operands and numbers; return the operator's arguments."""
    check_images(function, "x", x)
    check_images(function, "w", w)
    _arguments.same_device(function, "w", w.device, x.device)
    if x.scale is not None:
        raise ValueError(f"{function}: x must hold no scale, got one of each image")
    if not (isinstance(groups, int) and not isinstance(groups, bool)):
        raise TypeError(f"{function}: groups must be an int, got {name_type(groups)}")
    outputs = w.words.size(0)
    if not (groups >= 1 and x.channels % groups == 0 and outputs % groups == 0 and outputs > 0):
        raise ValueError(
            f"{function}: groups must divide the channels of x, {x.channels}, and the outputs of "
            f"w, {outputs}, got {groups}"
        )
    if w.channels != x.channels // groups:
        raise ValueError(
            f"{function}: w must hold {x.channels // groups} channels for {x.channels} of x in "
            f"{groups} groups, got {w.channels}"
        )
    return conv_shape(function, x.words.shape[1:3], w.words.shape[1:3], stride, padding, dilation)


def check_prepared(function: str, prepared: Tensor | None, w: BitImages) -> None:
    """Require None or the result of ``prepare`` for kernels of this shape."""
    if prepared is None:
        return
    outputs, height, width, _ = w.words.shape
    if not (isinstance(prepared, Tensor) and prepared.dtype == torch.int32):
        raise TypeError(
            f"{function}: prepared must be a torch.int32 tensor, got {name_type(prepared)}"
        )
    if prepared.shape != (outputs, height * width + 2):
        raise ValueError(
            f"{function}: prepared must have shape [{outputs}, {height * width + 2}] for "
            f"{outputs} kernels of {height} x {width}, got {list(prepared.shape)}"
        )
    _arguments.same_device(function, "prepared", prepared.device, w.device)


def check_step(function: str, step: float) -> None:
    """Require a power of two in the range of float32."""
    if not (isinstance(step, int | float) and not isinstance(step, bool)):
        raise TypeError(f"{function}: step must be a float, got {name_type(step)}")
    if not (math.frexp(step)[0] == 0.5 and -100 < math.frexp(step)[1] < 100):
        raise ValueError(
            f"{function}: step must be a power of two between 2^-100 and 2^98, got {step}"
        )


def check_fixed_operands(
    function: str,
    x: Tensor,
    w: BitImages,
    step: float,
    stride: Pair,
    padding: Pair | str,
    dilation: Pair,
) -> ConvShape:
    """Check operands and numbers of a first layer; return the operator's arguments."""
    if not (isinstance(x, Tensor) and x.dtype in FIRST_DTYPES and x.layout == torch.strided):
        raise TypeError(
            f"{function}: x must be dense float32, float16, bfloat16 or uint8, got {name_type(x)}"
        )
    check_images(function, "w", w)
    if not (x.dim() == 4 and x.size(1) == w.channels):
        raise ValueError(
            f"{function}: x must have shape [N, {w.channels}, H, W], got {list(x.shape)}"
        )
    _arguments.same_device(function, "w", w.device, x.device)
    check_step(function, step)
    if x.dtype == torch.uint8 and step != 1:
        raise ValueError(f"{function}: step must be 1 for uint8 images, got {step}")
    outputs, height, width, _ = w.words.shape
    if outputs <= 0:
        raise ValueError(f"{function}: w must have outputs, got none")
    if w.channels * height * width > MOST_WEIGHTS:
        raise ValueError(
            f"{function}: w must have at most {MOST_WEIGHTS} weights an output, got "
            f"{w.channels * height * width}"
        )
    return conv_shape(function, x.shape[2:4], (height, width), stride, padding, dilation)


def check_addend(
    name: str,
    addend: Tensor,
    x: BitImages,
    outputs: int,
    places: tuple[int, int],
    steps: tuple[int, int],
) -> None:
    """Require an addend whose strided pixels match the result, with at most as many channels."""
    if not (isinstance(addend, Tensor) and addend.dtype in (torch.int16, torch.int32)):
        raise TypeError(f"{name}: addend must be an int16 or int32 tensor, got {name_type(addend)}")
    if not (
        addend.dim() == 4
        and addend.size(0) == x.words.size(0)
        and addend.size(1) <= outputs
        and all(-(-addend.size(2 + i) // steps[i]) == places[i] for i in range(2))
    ):
        raise ValueError(
            f"{name}: addend must have shape [{x.words.size(0)}, at most {outputs}, h, w] with "
            f"{places[0]} x {places[1]} pixels at strides {list(steps)}, got {list(addend.shape)}"
        )
    _arguments.same_device(name, "addend", addend.device, x.device)


def pool_window(
    name: str,
    pool: Pair | None,
    flip: Tensor | None,
    channels: int,
    size: Sequence[int],
    device: torch.device,
) -> tuple[tuple[int, int] | None, Tensor | None]:
    """Pooling arguments of a convolution: the window, and the words of the flip."""
    _arguments.vector(name, "pool_flip", flip, channels, device, torch.bool)
    if pool is None and flip is not None:
        raise ValueError(f"{name}: pool_flip must be left out where there is no pool")
    if pool is None:
        return None, None
    window = whole_pair(name, "pool", pool, 1)
    if not (window[0] <= size[0] and window[1] <= size[1]):
        raise ValueError(
            f"{name}: pool must be no larger than the convolution's images, {list(size)}, "
            f"got {list(window)}"
        )
    return window, flip_words(flip)


def flip_words(flip: Tensor | None) -> Tensor | None:
    """A row of words whose set bits are the flipped channels."""
    return None if flip is None else image_words(flip.view(1, 1, 1, -1)).flatten()


def integer_limits(
    bit: Callable[[Tensor], Tensor], bound: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Limits for which ``bit(total) == (total >= limit) ^ turned``, found by bisection.

    ``bit`` makes booleans ``[O]`` of int64 totals ``[O]`` in ``[-bound, bound]``, monotone in each;
    ``like`` is ``[O]`` on its device. Limits are int64 in ``[-bound, bound + 1]``. What is always
    true has the limit ``-bound``, what never is has ``bound + 1``; neither is turned.
    """
    below = torch.full_like(like, -bound, dtype=torch.int64)
    limit, turned = torch.full_like(below, bound + 1), bit(below)
    # The first total with another bit than the lowest one has.
    for _ in range((2 * bound + 1).bit_length()):
        middle = torch.div(below + limit, 2, rounding_mode="floor")
        changed = bit(middle) != turned
        limit, below = torch.where(changed, middle, limit), torch.where(changed, below, middle)
    always = turned & (limit > bound)
    return torch.where(always, -bound, limit), turned & ~always
