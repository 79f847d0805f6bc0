"""Reference of binary convolution and of the packing of images.

Images are packed as words ``[N, H, W, ceil(C / 32)]``, weights as ``[O, kh, kw, ceil(C / g / 32)]``
for ``g`` groups. ``dot`` is the sum of the products of +-1 values over the taps inside the image:
what torch's convolution of +-1 gives with zeros around the image.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.bits.tensor import words_for
from bitgnn.ops.reference.bit_pool import pool_bits, window_places
from bitgnn.ops.reference.pack import binarise, decide, decide_product, signs, to_words
from bitgnn.ops.reference.table import operator

IMAGES = "x:_,_,_,_ w:M,_,_,_ w_scale:M bias:M threshold:M flip:M prepared:M,_"
"""Operands that convolutions share."""


def empty_pixels(
    x: Tensor,
    size: Sequence[int],
    w: Tensor,
    numbers: Sequence[Sequence[int]],
    features: int,
    dtype: torch.dtype = torch.int32,
) -> Tensor:
    """A result without values: so many numbers at each place of kernels on images of a size."""
    places = window_places(size, w.shape[1:3], *numbers)
    return x.new_empty((x.size(0), *places, features), dtype=dtype)


def image_words(bits: Tensor) -> Tensor:
    """Booleans ``[N, H, W, C]`` as words ``[N, H, W, ceil(C / 32)]``."""
    words = to_words(bits.flatten(0, 2))
    return words.view(*bits.shape[:3], words.size(1))


@operator("x:N,C,H,V threshold:C -> bits:N,H,V,C")
def pack_images(x: Tensor, threshold: Tensor | None = None) -> Tensor:
    """Words ``[N, H, W, ceil(C / 32)]`` of ``x >= threshold[c]`` for ``x`` ``[N, C, H, W]``."""
    return image_words(binarise(x.permute(0, 2, 3, 1), threshold))


def image_signs(words: Tensor, channels: int) -> Tensor:
    """Float64 ``[N, C, H, W]`` in {-1, +1}; float64 sums of integers are exact."""
    values = signs(words.reshape(-1, words.size(3)), channels)
    return values.view(*words.shape[:3], channels).permute(0, 3, 1, 2).double()


def integer_dots(
    x: Tensor,
    w: Tensor,
    channels: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """The exact integers ``[N, out height, out width, O]`` as int32."""
    top, bottom, left, right = padding
    padded = functional.pad(image_signs(x, channels), (left, right, top, bottom))
    weight = image_signs(w, channels // groups)
    dot = functional.conv2d(
        padded, weight, stride=list(stride), dilation=list(dilation), groups=groups
    )
    return dot.round().to(torch.int32).permute(0, 2, 3, 1).contiguous()


def scaled_dots(
    dot: Tensor, w_scale: Tensor | None, bias: Tensor | None, step: float = 1.0
) -> Tensor:
    """``w_scale[o] * (step * dot) + bias[o]``, every step rounded to float32."""
    value = dot.to(torch.float32) * step
    value = value if w_scale is None else w_scale * value
    return value if bias is None else value + bias


def _pooled_words(
    x: Tensor,
    w: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    pool: Sequence[int] | None,
) -> Tensor:
    """Words of each output pixel, or of each window of them."""
    numbers, outputs = (stride, padding, dilation), words_for(w.size(0))
    words = empty_pixels(x, x.shape[1:3], w, numbers, outputs)
    if pool is None:
        return words
    return words.new_empty((x.size(0), *window_places(words.shape[1:3], pool, pool), outputs))


@operator(f"{IMAGES} pool_flip:_", _pooled_words)
def conv_bbb(
    x: Tensor,
    w: Tensor,
    channels: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    prepared: Tensor | None = None,
    pool: Sequence[int] | None = None,
    pool_flip: Tensor | None = None,
) -> Tensor:
    """Words of ``(w_scale[o] * dot + bias[o] >= threshold[o]) ^ flip[o]``.

    ``padding`` is top, bottom, left, right. Without bias and threshold the scale, which is
    positive, is never applied. ``prepared`` only saves kernels work. With ``pool`` (height, width)
    the words are pooled over windows next to each other, ``pool_flip`` being the flip there.
    """
    dot = integer_dots(x, w, channels, stride, padding, dilation, groups)
    value = partial(scaled_dots, dot, w_scale, bias)
    words = image_words(decide_product(dot, value, bias, threshold, flip))
    if pool is not None:
        return pool_bits(words, pool, pool, (0, 0, 0, 0), pool_flip)
    if pool_flip is not None:
        raise ValueError("pool_flip must be left out where there is no pool")
    return words


@operator(
    IMAGES,
    lambda x, w, stride, padding, dilation, integer: empty_pixels(
        x,
        x.shape[1:3],
        w,
        (stride, padding, dilation),
        w.size(0),
        torch.int32 if integer else torch.float32,
    ),
)
def conv_bbf(
    x: Tensor,
    w: Tensor,
    channels: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    integer: bool = False,
    prepared: Tensor | None = None,
) -> Tensor:
    """``w_scale[o] * dot + bias[o]`` as float32 ``[N, out height, out width, O]``.

    With ``integer`` it is ``dot`` as int32, without scale and bias.
    """
    dot = integer_dots(x, w, channels, stride, padding, dilation, groups)
    if not integer:
        return scaled_dots(dot, w_scale, bias)
    if w_scale is not None or bias is not None:
        raise ValueError("integer=True leaves no room for a scale or a bias")
    return dot


def _totals_and_words(
    x: Tensor,
    w: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    wide: bool,
    sums: bool,
    bits: bool,
) -> tuple[Tensor, Tensor]:
    """Sums and words of each output pixel, where they are asked for."""
    size, numbers = x.shape[1:3], (stride, padding, dilation)
    dtype = torch.int32 if wide else torch.int16
    totals = empty_pixels(x, size, w, numbers, w.size(0), dtype)
    words = empty_pixels(x, size, w, numbers, words_for(w.size(0)))
    return (
        totals if sums else x.new_empty((0,), dtype=dtype),
        words if bits else x.new_empty((0,)),
    )


@operator(f"{IMAGES} addend:_,_,_,_", _totals_and_words)
def conv_add(
    x: Tensor,
    w: Tensor,
    channels: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
    addend: Tensor | None = None,
    addend_stride: Sequence[int] | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    wide: bool = False,
    sums: bool = True,
    bits: bool = True,
    prepared: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``total = dot + addend[i, y * s, x * t, c]`` and words of ``(total >= threshold) ^ flip``.

    Channels that ``addend`` lacks count as 0 there. Totals are int32 ``wide``, else int16, clamped.
    An output that is not asked for has shape ``[0]``.
    """
    if not (sums or bits):
        raise ValueError("sums or bits must be asked for, got neither")
    total = integer_dots(x, w, channels, stride, padding, dilation, groups)
    if addend is not None:
        rows, columns = (1, 1) if addend_stride is None else addend_stride
        added = addend[:, ::rows, ::columns].to(torch.int32)
        total = total + functional.pad(added, (0, total.size(3) - added.size(3)))
    words = kept = total.new_empty((0,))
    if bits:
        words = image_words(decide(total.to(torch.float32), threshold, flip))
    if sums:
        kept = total if wide else total.clamp(-32768, 32767)
    return kept.to(torch.int32 if wide else torch.int16), words
