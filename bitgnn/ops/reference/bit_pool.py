"""Reference of max pooling of packed images."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bitgnn.ops.reference.table import operator


def window_places(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
) -> tuple[int, int]:
    """Height and width of a window's places on images of a size; padding is of four sides."""
    height, width = (
        (size[i] + padding[2 * i] + padding[2 * i + 1] - dilation[i] * (kernel[i] - 1) - 1)
        // stride[i]
        + 1
        for i in range(2)
    )
    return height, width


@operator(
    "x:_,_,_,U flip:U",
    lambda x, kernel, stride, padding: x.new_empty(
        (x.size(0), *window_places(x.shape[1:3], kernel, stride, padding), x.size(3))
    ),
)
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
    rows, columns = window_places(padded.shape[1:3], kernel, stride)
    out = x.new_zeros((x.size(0), rows, columns, x.size(3)))
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            below = padded[:, i :: stride[0], j :: stride[1]]
            out |= below[:, :rows, :columns]
    return out if flip is None else out ^ flip
