"""Fake kernels of convolutions and of what packs and pools images; see ``_fake``."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

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


def pack_images(x: Tensor, threshold: Tensor | None = None) -> Tensor:
    """Words of float images."""
    return _images(x, (x.size(0), x.size(2), x.size(3)), words_for(x.size(1)), torch.int32)


def conv_bbb(
    x: Tensor,
    w: Tensor,
    channels: int,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    groups: int = 1,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    prepared: Tensor | None = None,
    pool: Numbers | None = None,
    pool_flip: Tensor | None = None,
) -> Tensor:
    """Words of each output pixel, or of each window of them."""
    images, *size = _pixels(x, w, stride, padding, dilation)
    height, width = size if pool is None else _places(size, pool, pool, (0, 0, 0, 0), (1, 1))
    return _images(x, (images, height, width), words_for(w.size(0)), torch.int32)


def conv_bbf(
    x: Tensor,
    w: Tensor,
    channels: int,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    groups: int = 1,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    integer: bool = False,
    prepared: Tensor | None = None,
) -> Tensor:
    """Values or integers of each output pixel."""
    pixels = _pixels(x, w, stride, padding, dilation)
    return _images(x, pixels, w.size(0), torch.int32 if integer else torch.float32)


def conv_add(
    x: Tensor,
    w: Tensor,
    channels: int,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    groups: int = 1,
    addend: Tensor | None = None,
    addend_stride: Numbers | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    wide: bool = False,
    sums: bool = True,
    bits: bool = True,
    prepared: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sums and words of each output pixel, where they are asked for."""
    pixels = _pixels(x, w, stride, padding, dilation)
    dtype = torch.int32 if wide else torch.int16
    outputs = w.size(0)
    kept = _images(x, pixels, outputs, dtype) if sums else x.new_empty((0,), dtype=dtype)
    words = _images(x, pixels, words_for(outputs), torch.int32) if bits else x.new_empty((0,))
    return kept, words


def conv_fbb(
    x: Tensor,
    w: Tensor,
    step: float,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    *_: Any,
    **__: Any,
) -> Tensor:
    """Words of each output pixel."""
    pixels = _fixed_pixels(x, w, stride, padding, dilation)
    return _images(x, pixels, words_for(w.size(0)), torch.int32)


def conv_fbf(
    x: Tensor,
    w: Tensor,
    step: float,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    integer: bool = False,
) -> Tensor:
    """Values or integers of each output pixel."""
    pixels = _fixed_pixels(x, w, stride, padding, dilation)
    return _images(x, pixels, w.size(0), torch.int32 if integer else torch.float32)


def pool_bits(
    x: Tensor, kernel: Numbers, stride: Numbers, padding: Numbers, flip: Tensor | None = None
) -> Tensor:
    """Words of each window."""
    height, width = _places(x.shape[1:3], kernel, stride, padding, (1, 1))
    return x.new_empty((x.size(0), height, width, x.size(3)))


def pack_patches(
    x: Tensor,
    kernel: Numbers,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    threshold: Tensor | None = None,
) -> Tensor:
    """Words of each patch."""
    height, width = _places(x.shape[2:], kernel, stride, padding, dilation)
    return x.new_empty((x.size(0), height, width, 2 * x.size(1)), dtype=torch.int32)


CONV_FAKES: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        conv_add,
        conv_bbb,
        conv_bbf,
        conv_fbb,
        conv_fbf,
        pack_images,
        pack_patches,
        pool_bits,
    )
}
"""Fake kernel of each operator, by name."""
