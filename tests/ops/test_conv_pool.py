"""Convolutions that pool their bits: the same as pooling behind them, whatever the device does."""

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn.bits import BitImages
from bitgnn.ops import conv

# Images, height, width, channels, outputs, kernel, stride, padding, window: strips of pixels with
# odd sizes and strides, tiles of 16, 32 and 64 pixels, sums split over warps, many pixels, windows
# of other sizes, channels that fill no word.
SHAPES = {
    "strips": (3, 12, 20, 64, 128, 3, 1, 1, 2),
    "strips of odd sizes": (2, 13, 27, 128, 64, 3, 1, 1, 2),
    "strips without padding": (2, 9, 10, 128, 64, 3, 1, 0, 2),
    "stride": (2, 16, 16, 64, 64, 3, 2, 1, 2),
    "many strips": (40, 28, 28, 64, 64, 3, 1, 1, 2),
    "8 x 8": (8, 8, 8, 512, 512, 3, 1, 1, 2),
    "16 x 16": (8, 16, 16, 256, 256, 3, 1, 1, 2),
    "rows over several tiles": (3, 6, 32, 256, 32, 3, 1, 1, 2),
    "no whole rows in a tile": (2, 6, 14, 256, 96, 3, 1, 1, 2),
    "odd height": (2, 7, 8, 256, 96, 3, 1, 1, 2),
    "one window": (1, 2, 2, 33, 40, 3, 1, 1, 2),
    "few channels": (2, 8, 8, 3, 5, 3, 1, 1, 2),
    "many pixels": (30, 32, 32, 256, 256, 3, 1, 1, 2),
    "tall window": (2, 9, 8, 64, 64, 3, 1, 1, (3, 1)),
}


def images(count, channels, height, width, seed):
    generator = torch.Generator().manual_seed(seed)
    return BitImages.from_float(torch.randn(count, channels, height, width, generator=generator))


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("compared", [False, True])
def test_is_the_pooled_convolution(case, compared, device):
    count, height, width, channels, outputs, kernel, stride, padding, window = SHAPES[case]
    x, w = images(count, channels, height, width, 0), images(outputs, channels, kernel, kernel, 1)
    generator = torch.Generator().manual_seed(2)
    flip, pool_flip = torch.rand(2, outputs, generator=generator) < 0.3
    threshold = (torch.rand(outputs, generator=generator) - 0.5) * 3 * channels**0.5
    threshold[0] = float("nan")
    given = {"threshold": threshold, "flip": flip} if compared else {}
    pooled = pool_flip if compared else None
    numbers = {"stride": stride, "padding": padding}
    expected = conv.max_pool(conv.bbb(x, w, **numbers, **given), window, flip=pooled)
    weight = w.to(device)
    moved = {name: tensor.to(device) for name, tensor in given.items()}
    mark = None if pooled is None else pooled.to(device)
    for prepared in (None, conv.prepare(weight, **moved)):
        found = conv.bbb(
            x.to(device), weight, **numbers, **moved, prepared=prepared, pool=window, pool_flip=mark
        )
        assert found.shape == expected.shape
        assert torch.equal(found.words.cpu(), expected.words)


X, W = images(2, 40, 5, 6, 0), images(33, 40, 3, 3, 1)


def pooled_words(*pool):
    numbers = (40, [1, 1], [0, 0, 0, 0], [1, 1], 1)
    return torch.ops.bitgnn.conv_bbb(X.words, W.words, *numbers, *[None] * 5, *pool)


WRONG = r"""
conv.bbb(X, W, pool=0) -> ValueError: conv.bbb: pool must be at least 1, got
conv.bbb(X, W, pool="2") -> TypeError: conv.bbb: pool must be an int or
conv.bbb(X, W, pool=(2, 5))
    -> ValueError: pool must be no larger than the convolution's images, \[3, 4\], got \[2, 5\]
conv.bbb(X, W, pool_flip=torch.zeros(33, dtype=torch.bool))
    -> ValueError: conv.bbb: pool_flip must be left out where there is no pool
conv.bbb(X, W, pool=2, pool_flip=torch.zeros(3, dtype=torch.bool))
    -> ValueError: conv.bbb: pool_flip must have shape \[33\], got \[3\]
conv.bbb(X, W, pool=2, pool_flip=torch.zeros(33))
    -> TypeError: conv.bbb: pool_flip must be a torch.bool tensor, got torch.float32
pooled_words([2]) -> RuntimeError: conv_bbb: pool must hold 2 numbers, got 1
pooled_words([0, 2]) -> RuntimeError: conv_bbb: pool must be at least 1, got 0
pooled_words([4, 2])
    -> RuntimeError: conv_bbb: pool must have a kernel no larger than the padded image
pooled_words([2, 2], torch.zeros(1).int()) -> RuntimeError: words of pool_flip must be 2, got 1
pooled_words([2, 2], torch.zeros(2)) -> RuntimeError: conv_bbb: pool_flip must be Int, got Float
pooled_words(None, torch.zeros(2).int()) -> RuntimeError: pool_flip must be left out
"""


def test_errors():
    check_wrong_calls(WRONG, globals())


def test_no_images(device):
    x = BitImages(torch.zeros((0, 6, 6, 2), dtype=torch.int32), 64).to(device)
    found = conv.bbb(x, images(64, 64, 3, 3, 1).to(device), padding=1, pool=2)
    assert found.shape == (0, 64, 3, 3)
