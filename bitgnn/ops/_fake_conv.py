"""Fake kernels of convolutions and of what packs and pools images; see ``_fake``."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bitgnn.ops._fake_calls import fakes_like
from bitgnn.ops.reference import OPERATORS
from bitgnn.ops.reference.pack import words_for

Numbers = Sequence[int]


def _images(like: Tensor, pixels: tuple[int, int, int], size: int, dtype: torch.dtype) -> Tensor:
    return like.new_empty((*pixels, size), dtype=dtype)


def _places(
    size: Sequence[int], kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers
) -> tuple[int, int]:
    """Height and width of a window's places on images of a size."""
    height, width = (
        (size[i] + padding[2 * i] + padding[2 * i + 1] - dilation[i] * (kernel[i] - 1) - 1)
        // stride[i]
        + 1
        for i in range(2)
    )
    return height, width


def _pixels(
    x: Tensor, w: Tensor, stride: Numbers, padding: Numbers, dilation: Numbers
) -> tuple[int, int, int]:
    """Images, height and width of the result of packed images and kernels."""
    return x.size(0), *_places(x.shape[1:3], w.shape[1:3], stride, padding, dilation)


def _fixed_pixels(
    x: Tensor, w: Tensor, stride: Numbers, padding: Numbers, dilation: Numbers
) -> tuple[int, int, int]:
    """The same for float images ``[N, C, H, W]``."""
    return x.size(0), *_places(x.shape[2:4], w.shape[1:3], stride, padding, dilation)


def _pack_images(x: Tensor) -> Tensor:
    """Words of float images."""
    return _images(x, (x.size(0), x.size(2), x.size(3)), words_for(x.size(1)), torch.int32)


def _conv_bbb(
    x: Tensor,
    w: Tensor,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    pool: Numbers | None,
) -> Tensor:
    """Words of each output pixel, or of each window of them."""
    images, *size = _pixels(x, w, stride, padding, dilation)
    height, width = size if pool is None else _places(size, pool, pool, (0, 0, 0, 0), (1, 1))
    return _images(x, (images, height, width), words_for(w.size(0)), torch.int32)


def _conv_bbf(
    x: Tensor, w: Tensor, stride: Numbers, padding: Numbers, dilation: Numbers, integer: bool
) -> Tensor:
    """Values or integers of each output pixel."""
    pixels = _pixels(x, w, stride, padding, dilation)
    return _images(x, pixels, w.size(0), torch.int32 if integer else torch.float32)


def _conv_add(
    x: Tensor,
    w: Tensor,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    wide: bool,
    sums: bool,
    bits: bool,
) -> tuple[Tensor, Tensor]:
    """Sums and words of each output pixel, where they are asked for."""
    pixels = _pixels(x, w, stride, padding, dilation)
    dtype = torch.int32 if wide else torch.int16
    outputs = w.size(0)
    kept = _images(x, pixels, outputs, dtype) if sums else x.new_empty((0,), dtype=dtype)
    words = _images(x, pixels, words_for(outputs), torch.int32) if bits else x.new_empty((0,))
    return kept, words


def _conv_fbb(x: Tensor, w: Tensor, stride: Numbers, padding: Numbers, dilation: Numbers) -> Tensor:
    """Words of each output pixel."""
    pixels = _fixed_pixels(x, w, stride, padding, dilation)
    return _images(x, pixels, words_for(w.size(0)), torch.int32)


def _conv_fbf(
    x: Tensor, w: Tensor, stride: Numbers, padding: Numbers, dilation: Numbers, integer: bool
) -> Tensor:
    """Values or integers of each output pixel."""
    pixels = _fixed_pixels(x, w, stride, padding, dilation)
    return _images(x, pixels, w.size(0), torch.int32 if integer else torch.float32)


def _pool_bits(x: Tensor, kernel: Numbers, stride: Numbers, padding: Numbers) -> Tensor:
    """Words of each window."""
    height, width = _places(x.shape[1:3], kernel, stride, padding, (1, 1))
    return x.new_empty((x.size(0), height, width, x.size(3)))


def _pack_patches(
    x: Tensor, kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers
) -> Tensor:
    """Words of each patch."""
    height, width = _places(x.shape[2:], kernel, stride, padding, dilation)
    return x.new_empty((x.size(0), height, width, 2 * x.size(1)), dtype=torch.int32)


CONV_FAKES = fakes_like(
    OPERATORS,
    (
        (["pack_images"], _pack_images),
        (["conv_bbb"], _conv_bbb),
        (["conv_bbf"], _conv_bbf),
        (["conv_add"], _conv_add),
        (["conv_fbb"], _conv_fbb),
        (["conv_fbf"], _conv_fbf),
        (["pool_bits"], _pool_bits),
        (["pack_patches"], _pack_patches),
    ),
)
"""Fake kernel of each operator, by name."""
