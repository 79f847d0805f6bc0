r"""Convolution of few-channel bit images: a patch of one channel in one word.

With a word for each tap, images of three channels waste 29 of 32 bits. Here the taps of a kernel of
at most 32 pixels lie in one word: 25 bits of a 5x5 patch, cut out and packed in one pass over the
floats. A second word marks the pixels of the patch that are -1, and neither marks what is outside
of the image. A kernel's words are its signs and their opposites, so that with
:math:`K` taps the product of ``2 * C`` words is

.. math:: 2\,dot + C\,(64 - 2K),

``dot`` being what :mod:`~bitgnn.ops.conv` computes, taps outside left out. It is a convolution of
1x1 on :class:`~bitgnn.bits.BitImages` of ``64 * C`` channels, on every device. Functions raise
TypeError (type, dtype) or ValueError (shape, device, value) before any kernel runs.

Source: Khan et al., "Binarized Convolutional Neural Networks for Efficient Inference on GPUs",
EUSIPCO 2018 (packing patches of one channel into words of 25 bits, as they are cut out).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits.tensor import WORD_BITS, BitImages
from bitgnn.ops import conv
from bitgnn.ops._arguments import call
from bitgnn.ops.conv_shape import Pair, check_images, conv_shape, whole_pair


class PatchKernel(NamedTuple):
    """A kernel whose taps are packed as patches are, with its comparison.

    Attributes:
        words: ``[O, 64 * C, 1, 1]``.
        excess: what the product of words holds besides twice the sum.
        threshold: float32 ``[O]`` that the product of words is compared with.
        flip: bool ``[O]``, where the comparison is reversed.
    """

    words: BitImages
    excess: int
    threshold: Tensor
    flip: Tensor


def bits_of(channels: int) -> int:
    """Channels of the images that :func:`pack` gives: two words for each that it takes."""
    return 2 * WORD_BITS * channels


def pack(
    x: Tensor,
    kernel_size: Pair,
    *,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    threshold: Tensor | None = None,
) -> BitImages:
    """The patches of float images as words, two a channel.

    Args:
        x: float32 ``[N, C, H, W]``.
        kernel_size: number or pair, at most 32 pixels.
        stride: number or pair, and so on as in :mod:`~bitgnn.ops.conv`.
        padding: pixels around the image.
        dilation: of the kernel.
        threshold: float32 ``[C]``: a pixel is +1 from it on, 0 without one.

    Returns:
        Images ``[N, 64 * C, out height, out width]``.
    """
    name = "patches.pack"
    if not (isinstance(x, Tensor) and x.dtype == torch.float32):
        raise TypeError(f"{name}: x must be a float32 tensor, got {name_type(x)}")
    if not (x.dim() == 4 and x.size(1) >= 1):
        raise ValueError(f"{name}: x must have shape [N, C, H, W] with C >= 1, got {list(x.shape)}")
    taps = whole_pair(name, "kernel_size", kernel_size, 1)
    _check_taps(name, taps)
    shape = conv_shape(name, x.shape[2:], taps, stride, padding, dilation)
    words = call(name, "pack_patches", x, taps, *shape, threshold)
    return BitImages._trusted(words, bits_of(x.size(1)))


def kernel(
    w: BitImages,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
) -> PatchKernel:
    """Prepare a kernel for patches and the comparison of :func:`bbb`, once for all calls.

    Args:
        w: ``[O, C, kh, kw]`` of at most 32 taps.
        scale: as in :func:`bitgnn.ops.conv.bbb`, and so on.
        bias: float32 ``[O]``.
        threshold: float32 ``[O]``.
        flip: bool ``[O]``.
    """
    name = "patches.kernel"
    check_images(name, "w", w)
    height, width = w.words.shape[1:3]
    _check_taps(name, (height, width))
    signs = BitImages._trusted(w.words, w.channels).to_float()
    no_frame = ([height, width], [1, 1], [0] * 4, [1, 1])
    words = torch.ops.bitgnn.pack_patches(signs.contiguous(), *no_frame)
    excess = w.channels * 2 * (WORD_BITS - height * width)
    prepared = conv.prepare(w, scale=scale, bias=bias, threshold=threshold, flip=flip)
    limit, turned = prepared[:, -2], prepared[:, -1]
    return PatchKernel(
        BitImages._trusted(words, bits_of(w.channels)),
        excess,
        (2 * limit + excess).float(),
        turned.bool(),
    )


def bbb(x: BitImages, w: PatchKernel) -> BitImages:
    """Bits of the comparison that ``w`` was made with: those of :func:`bitgnn.ops.conv.bbb`.

    Returns:
        Images ``[N, O, out height, out width]``.
    """
    _check_kernel("patches.bbb", w)
    return conv.bbb(x, w.words, threshold=w.threshold, flip=w.flip)


def bbf(x: BitImages, w: PatchKernel) -> Tensor:
    """``dot`` in int32, that of :func:`bitgnn.ops.conv.bbf` with ``integer``.

    Returns:
        ``[N, O, out height, out width]`` in the channels_last memory format.
    """
    _check_kernel("patches.bbf", w)
    doubled = conv.bbf(x, w.words, integer=True)
    return (doubled - w.excess).bitwise_right_shift(1)


def _check_taps(name: str, taps: tuple[int, int]) -> None:
    if taps[0] * taps[1] > WORD_BITS:
        raise ValueError(f"{name}: a kernel must have at most {WORD_BITS} pixels, got {list(taps)}")


def _check_kernel(name: str, w: PatchKernel) -> None:
    if not isinstance(w, PatchKernel):
        raise TypeError(f"{name}: w must be a PatchKernel, got {name_type(w)}")
