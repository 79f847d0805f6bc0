"""Max pooling of packed images."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bitgnn._checks import check_value
from bitgnn.bits.tensor import BitImages
from bitgnn.ops import _arguments
from bitgnn.ops.conv_shape import Pair, check_images, whole_pair
from bitgnn.ops.reference.conv import image_words


def max_pool(
    x: BitImages,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    *,
    flip: Tensor | None = None,
) -> BitImages:
    """The greatest bit of each window: OR over its pixels inside the image.

    Signs of a max-pooled image are the max-pooled signs, and of one pooled behind a negative gain
    the min-pooled ones: ``flip`` marks channels of which the least bit is taken.

    Args:
        x: images ``[N, C, H, W]`` with pixels.
        kernel_size: number or pair.
        stride: number or pair, the kernel's size without one.
        padding: number or pair, at most half of the kernel, as torch asks for.
        flip: bool ``[C]``.

    Returns:
        Images ``[N, C, out height, out width]``, as ``torch.nn.MaxPool2d`` makes them;
        the scale of ``x`` is left out.

    Raises:
        TypeError: a type or dtype does not fit.
        ValueError: a shape, device or number does not fit.
    """
    name = "conv.max_pool"
    check_images(name, "x", x)
    kernel = whole_pair(name, "kernel_size", kernel_size, 1)
    steps = kernel if stride is None else whole_pair(name, "stride", stride, 1)
    height, width = whole_pair(name, "padding", padding, 0)
    check_value(
        2 * height <= kernel[0] and 2 * width <= kernel[1],
        lambda: f"{name}: padding must be at most half of the kernel {kernel}, got {padding!r}",
    )
    size = x.words.shape[1:3]
    check_value(
        min(size) >= 1 and kernel[0] <= size[0] + 2 * height and kernel[1] <= size[1] + 2 * width,
        lambda: (
            f"{name}: the kernel must be no larger than the padded image, "
            f"{[size[0] + 2 * height, size[1] + 2 * width]}, got {list(kernel)}"
        ),
    )
    _arguments.vector(name, "flip", flip, x.channels, x.device, torch.bool)
    turned = _mask(flip)
    sides = height, height, width, width
    words = torch.ops.bitgnn.pool_bits(x.words, kernel, steps, sides, turned)
    return BitImages._trusted(words, x.channels)


def pool_window(
    name: str,
    pool: Pair | None,
    flip: Tensor | None,
    channels: int,
    size: Sequence[int],
    device: torch.device,
) -> tuple[tuple[int, int] | None, Tensor | None]:
    """What a convolution's operator takes to pool its bits: the window and words of the flip.

    Args:
        name: of the function, for errors.
        pool: number or pair, or None.
        flip: bool ``[O]``, or None.
        channels: O.
        size: height and width of the convolution's images.
        device: of both.

    Raises:
        TypeError: a type or dtype does not fit.
        ValueError: a shape, device or number does not fit.
    """
    _arguments.vector(name, "pool_flip", flip, channels, device, torch.bool)
    check_value(
        pool is not None or flip is None,
        lambda: f"{name}: pool_flip must be left out where there is no pool",
    )
    if pool is None:
        return None, None
    window = whole_pair(name, "pool", pool, 1)
    check_value(
        window[0] <= size[0] and window[1] <= size[1],
        lambda: (
            f"{name}: pool must be no larger than the convolution's images, {list(size)}, "
            f"got {list(window)}"
        ),
    )
    return window, _mask(flip)


def _mask(flip: Tensor | None) -> Tensor | None:
    """A row of words whose set bits are the flipped channels."""
    return None if flip is None else image_words(flip.view(1, 1, 1, -1)).flatten()
