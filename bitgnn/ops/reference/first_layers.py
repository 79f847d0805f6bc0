"""Reference of first layers: images in fixed point times weights of +-1, and packed patches."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.bits.tensor import words_for
from bitgnn.ops.reference.bit_pool import window_places
from bitgnn.ops.reference.conv import IMAGES, empty_pixels, image_signs, image_words, scaled_dots
from bitgnn.ops.reference.pack import binarise, decide_product
from bitgnn.ops.reference.table import operator


def fixed_point(x: Tensor, step: float) -> Tensor:
    """Float64 ``clamp(round(x / step), -32768, 32767)``, halves to even, NaN as 0; uint8 as is."""
    if x.dtype == torch.uint8:
        return x.double()
    steps = (x.to(torch.float32) / step).round().clamp(-32768, 32767)
    return steps.nan_to_num(0.0).double()


def _dots(
    x: Tensor,
    w: Tensor,
    step: float,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """The exact integers ``[N, out height, out width, O]`` as int32."""
    top, bottom, left, right = padding
    padded = functional.pad(fixed_point(x, step), (left, right, top, bottom))
    weight = image_signs(w, x.size(1))
    dot = functional.conv2d(padded, weight, stride=list(stride), dilation=list(dilation))
    return dot.round().to(torch.int32).permute(0, 2, 3, 1).contiguous()


@operator(
    IMAGES,
    lambda x, w, stride, padding, dilation: empty_pixels(
        x, x.shape[2:4], w, (stride, padding, dilation), words_for(w.size(0))
    ),
)
def conv_fbb(
    x: Tensor,
    w: Tensor,
    step: float,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    prepared: Tensor | None = None,
) -> Tensor:
    """Words of ``(w_scale[o] * (step * dot) + bias[o] >= threshold[o]) ^ flip[o]``.

    Without bias and threshold the scale, which is positive, is never applied.
    """
    dot = _dots(x, w, step, stride, padding, dilation)
    value = partial(scaled_dots, dot, w_scale, bias, step)
    return image_words(decide_product(dot, value, bias, threshold, flip))


@operator(
    IMAGES,
    lambda x, w, stride, padding, dilation, integer: empty_pixels(
        x,
        x.shape[2:4],
        w,
        (stride, padding, dilation),
        w.size(0),
        torch.int32 if integer else torch.float32,
    ),
)
def conv_fbf(
    x: Tensor,
    w: Tensor,
    step: float,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    integer: bool = False,
) -> Tensor:
    """``w_scale[o] * (step * dot) + bias[o]`` as float32 ``[N, out height, out width, O]``.

    With ``integer`` it is ``dot`` as int32, without scale and bias.
    """
    dot = _dots(x, w, step, stride, padding, dilation)
    if not integer:
        return scaled_dots(dot, w_scale, bias, step)
    if w_scale is not None or bias is not None:
        raise ValueError("integer=True leaves no room for a scale or a bias")
    return dot


@operator(
    "x:_,C,_,_ threshold:C",
    lambda x, kernel, stride, padding, dilation: x.new_empty(
        (x.size(0), *window_places(x.shape[2:], kernel, stride, padding, dilation), 2 * x.size(1)),
        dtype=torch.int32,
    ),
)
def pack_patches(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    threshold: Tensor | None = None,
) -> Tensor:
    """Words ``[N, out height, out width, 2 * C]`` of the patches of ``x`` ``[N, C, H, W]``.

    Bit ``i * kernel[1] + j`` stands for tap (i, j) of a patch: set in word ``2 * c`` where channel
    ``c`` is at least its threshold, in word ``2 * c + 1`` where it is not, in neither outside of
    the image. ``padding`` is top, bottom, left, right.
    """
    top, bottom, left, right = padding
    bits = binarise(x.permute(0, 2, 3, 1), threshold)
    frame = (0, 0, left, right, top, bottom)
    marks = [functional.pad(kind.long(), frame) for kind in (bits, ~bits)]
    size = window_places(x.shape[2:], kernel, stride, padding, dilation)
    words = torch.zeros((x.size(0), *size, x.size(1), 2), dtype=torch.int64, device=x.device)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            shift = i * kernel[1] + j
            for which, mark in enumerate(marks):
                taps = mark[:, i * dilation[0] :: stride[0], j * dilation[1] :: stride[1]]
                words[..., which] |= taps[:, : size[0], : size[1]] << shift
    # The upper half of the range is that of negative int32.
    words = torch.where(words >= 2**31, words - 2**32, words)
    return words.to(torch.int32).flatten(3)
