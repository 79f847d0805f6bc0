"""Reference of packing the patches of images."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.ops.reference.pack import binarise

__all__ = ["pack_patches"]


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
    size = [
        (marks[0].size(i + 1) - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    ]
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
