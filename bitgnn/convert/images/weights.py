"""Packed weights of frozen convolutions and linear maps."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.bits import BitImages
from bitgnn.inference.steps.aggregates import words_of

__all__ = ["kernel_words", "row_words", "rows_behind_images"]

WORD_BITS = 32
_pack = torch.ops.bitgnn.pack.default


def kernel_words(weight: Tensor) -> Tensor:
    """Words ``[O, kh, kw, ceil(C / 32)]`` of the signs of ``[O, C, kh, kw]``."""
    return BitImages.from_float(weight.cpu()).words.to(weight.device)


def row_words(weight: Tensor) -> Tensor:
    """Words ``[O, ceil(K / 32)]`` of the signs of ``[O, K]``."""
    words: Tensor = _pack(weight.contiguous())
    return words


def rows_behind_images(weight: Tensor, channels: int) -> tuple[Tensor, int]:
    """Words of weights of flattened images, and the number of bits that count in a row.

    The columns of ``weight`` ``[O, channels * pixels]`` are ordered by channel, then pixel; the
    words of packed images by pixel, then channel, each pixel padded to whole words. Padding bits
    of the images are 0, which stands for -1: as many of the weight's are 1 as are 0 there, so that
    their products cancel. An odd one out is the last bit of a row, which is left out of its size.
    """
    out, features = weight.shape
    pixels, width = features // channels, words_of(channels) * WORD_BITS
    padding = width - channels
    by_pixel = weight.view(out, channels, pixels).transpose(1, 2)
    rows = functional.pad(by_pixel, (0, padding), value=-1.0).reshape(out, pixels * width)
    places = torch.arange(pixels * width, device=weight.device)
    places = places[places % width >= channels]
    rows[:, places[: padding * pixels // 2]] = 1.0
    size = pixels * width - padding * pixels % 2
    return row_words(rows[:, :size]), size
