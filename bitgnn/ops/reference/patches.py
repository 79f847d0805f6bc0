"""Reference of packing the patches of images."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.ops.reference.bit_pool import window_places
from bitgnn.ops.reference.pack import binarise
from bitgnn.ops.reference.table import operator

__all__ = ["pack_patches"]


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
