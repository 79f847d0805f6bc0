"""Reference of max pooling of packed images."""

from collections.abc import Sequence

import torch
from torch import Tensor


def pool_bits(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    flip: Tensor | None = None,
) -> Tensor:
    """OR of the words ``[N, H, W, words]`` over each window's pixels inside the image.

    ``flip`` ``[words]`` turns bits round before and behind, which makes it the minimum there.
    ``padding`` is top, bottom, left, right, and less than the kernel.
    """
    top, bottom, left, right = padding
    turned = x if flip is None else x ^ flip
    # Words of zeros around the image change no OR.
    padded = torch.nn.functional.pad(turned, (0, 0, left, right, top, bottom))
    rows = (padded.size(1) - kernel[0]) // stride[0] + 1
    columns = (padded.size(2) - kernel[1]) // stride[1] + 1
    out = x.new_zeros((x.size(0), rows, columns, x.size(3)))
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            below = padded[:, i :: stride[0], j :: stride[1]]
            out |= below[:, :rows, :columns]
    return out if flip is None else out ^ flip
