"""Wrong arguments of operators on images raise one clear error that names what is wrong."""

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn.bits import BitImages
from bitgnn.ops import conv, patches

__all__ = ["conv", "patches"]  # which the tables call

OPS = torch.ops.bitgnn
PIXELS = torch.ones(2, 40, 5, 6)
X = BitImages.from_float(PIXELS)
Y = BitImages.from_float(torch.ones(2, 40, 6, 8))
W = BitImages.from_float(torch.ones(8, 40, 3, 3))
SCALED = BitImages.from_float(torch.ones(8, 40, 3, 3), scale="mean")
MANY = BitImages.from_float(torch.ones(33, 40, 3, 3))
RGB = torch.ones(2, 3, 9, 9)
F = BitImages.from_float(torch.ones(8, 3, 3, 3))
P = BitImages.from_float(torch.ones(4, 3, 5, 5))
PLAIN = [1, 1], [0] * 4, [1, 1]
CONV = X.words, W.words, 40
SUM_CALL = Y.words, W.words, 40, *PLAIN, 1
SUMS = torch.ones(2, 8, 4, 6, dtype=torch.int16)
INFINITE = torch.full((8,), float("inf"))


def pooled_words(*pool):
    return OPS.conv_bbb(X.words, MANY.words, 40, *PLAIN, 1, *[None] * 5, *pool)


WRONG = {
    "convolutions": r"""
conv.bbb(PIXELS, W) -> TypeError: conv.bbb: x must be BitImages, got torch.float
conv.bbf(X, PIXELS) -> TypeError: conv.bbf: w must be BitImages, got torch.float
conv.bbf(X, BitImages.from_float(torch.ones(8, 39, 3, 3)))
    -> ValueError: w must hold 40 channels .* got 39
conv.bbf(X, W, groups=3) -> ValueError: groups must divide .* got 3
conv.bbf(X, BitImages.from_float(torch.ones(9, 13, 3, 3)), groups=3)
    -> ValueError: groups must divide .* got 3
conv.bbf(X, W, groups=2.0) -> TypeError: groups must be an int
conv.bbf(X, W, stride=0) -> ValueError: stride must be at least 1, got 0
conv.bbf(X, W, dilation=(1, 0)) -> ValueError: dilation must be at least
conv.bbf(X, W, padding=-1) -> ValueError: padding must be at least 0
conv.bbf(X, W, padding=1.5) -> TypeError: padding must be an int or
conv.bbf(X, W, padding="full") -> ValueError: padding .* got 'full'
conv.bbf(X, W, padding="full", stride=2)
    -> ValueError: padding must be numbers, 'valid' or 'same', got 'full'
conv.bbb(X, W, dilation=3)
    -> ValueError: conv.bbb: the kernel must be no larger than the padded image, \[5, 6\], got \[3,
        3\]
conv.bbf(BitImages.from_float(PIXELS, scale="mean"), W) -> ValueError: x must hold no scale
conv.bbf(X, W, bias=torch.ones(7)) -> ValueError: bias .*\[8\], got \[7\]
conv.bbb(X, W, flip=torch.ones(8)) -> TypeError: flip must be a torch.bool
conv.bbf(X, W, bias=torch.ones(8), integer=True) -> ValueError: bias must be None with integer=True
conv.bbf(X, W.to("meta")) -> ValueError: w must be on cpu .* got meta
BitImages.from_float(PIXELS.int())
    -> TypeError: BitImages.from_float: x must be dense floating point or uint8, got torch.int32
BitImages.from_float(PIXELS.to_sparse()) -> TypeError: x must be dense floating point
BitImages.from_float(PIXELS[0])
    -> ValueError: x must have shape \[N, C, H, W\] with C >= 1, got \[40, 5, 6\]
BitImages.from_float(PIXELS, torch.ones(39))
    -> ValueError: threshold must have shape \[40\] like x's channels, got \[39\]
BitImages.from_float(PIXELS, scale="max") -> ValueError: got 'max'
BitImages(X.words.long(), 40) -> TypeError: words must be an int32
BitImages(X.words, 65) -> ValueError: \[N, H, W, 3\] for 65 channels
BitImages(X.words[..., :0], 0) -> ValueError: channels must be >= 1
BitImages(X.words, 40, torch.ones(3)) -> ValueError: BitImages: scale .*\[2\], got
OPS.conv_bbf(*CONV, [0, 1], [0] * 4, [1, 1]) -> RuntimeError: stride must be at least 1, got 0
OPS.conv_bbf(*CONV, [1, 1], [0] * 2, [1, 1]) -> RuntimeError: padding must hold 4 numbers, got 2
OPS.conv_bbb(*CONV, [1, 1], [0] * 4, [3, 3])
    -> RuntimeError: no larger than the padded image: 5 along an axis, got 7
OPS.conv_bbb(*CONV, [1, 1], [0] * 4, [1, 1], 3)
    -> RuntimeError: channels must be a positive multiple of groups, 3, got 40
""",
    "sums": r"""
conv.add(SUMS, W) -> TypeError: conv.add: x must be BitImages, got torch.int16
conv.add(Y, W, sums=False, bits=False) -> ValueError: sums or bits must be asked for, got neither
conv.add(Y, W, addend=SUMS.float())
    -> TypeError: conv.add: addend must be an int16 or int32 tensor, got torch.float32
conv.add(Y, W, addend=torch.ones(2, 9, 4, 6, dtype=torch.int16))
    -> ValueError: addend must have shape \[2, at most 8, h, w\] .* got \[2, 9, 4, 6\]
conv.add(Y, W, addend=SUMS[:1]) -> ValueError: got \[1, 8, 4, 6\]
conv.add(Y, W, addend=SUMS, addend_stride=2)
    -> ValueError: with 4 x 6 pixels at strides \[2, 2\], got \[2, 8, 4, 6\]
conv.add(Y, W, addend=SUMS, addend_stride=0) -> ValueError: addend_stride must be at least 1, got 0
conv.add(Y, W, addend=SUMS.to("meta")) -> ValueError: addend must be
conv.add(Y, W, threshold=torch.ones(7)) -> ValueError: threshold .*\[8\], got \[7\]
conv.add(Y, W, prepared=torch.ones(8, 11))
    -> TypeError: conv.add: prepared must be a torch.int32 tensor, got torch.float32
conv.add(Y, W, prepared=torch.ones(8, 10, dtype=torch.int32))
    -> ValueError: prepared must have shape \[8, 11\] for 8 kernels of 3 x 3, got \[8, 10\]
OPS.conv_add(*SUM_CALL, SUMS.float())
    -> RuntimeError: conv_add: addend must be Short or Int, got Float
OPS.conv_add(*SUM_CALL, torch.ones(2, 3, 6, 8, dtype=torch.int16))
    -> RuntimeError: addend must have 4 rows at stride 1 like the result, got 3
OPS.conv_add(*SUM_CALL, None, prepared=torch.ones(8, 10, dtype=torch.int32))
    -> RuntimeError: columns of prepared must be 11, got 10
OPS.conv_add(*SUM_CALL, torch.ones(2, 4, 6, 9, dtype=torch.int16))
    -> RuntimeError: at most as many channels as the result, 8, got 9
""",
    "pools": r"""
conv.bbb(X, MANY, pool=0) -> ValueError: conv.bbb: pool must be at least 1, got
conv.bbb(X, MANY, pool="2") -> TypeError: conv.bbb: pool must be an int or
conv.bbb(X, MANY, pool=(2, 5))
    -> ValueError: pool must be no larger than the convolution's images, \[3, 4\], got \[2, 5\]
conv.bbb(X, MANY, pool_flip=torch.zeros(33, dtype=torch.bool))
    -> ValueError: conv.bbb: pool_flip must be left out where there is no pool
conv.bbb(X, MANY, pool=2, pool_flip=torch.zeros(3, dtype=torch.bool))
    -> ValueError: conv.bbb: pool_flip must have shape \[33\], got \[3\]
conv.bbb(X, MANY, pool=2, pool_flip=torch.zeros(33))
    -> TypeError: conv.bbb: pool_flip must be a torch.bool tensor, got torch.float32
pooled_words([0, 2]) -> RuntimeError: conv_bbb: pool must be at least 1, got 0
pooled_words([4, 2])
    -> RuntimeError: conv_bbb: pool must have a kernel no larger than the padded image
pooled_words(None, torch.zeros(2).int()) -> RuntimeError: pool_flip must be left out
conv.max_pool(X.words, 2) -> TypeError: conv.max_pool: x must be BitImages
conv.max_pool(X, 0) -> ValueError: kernel_size must be at least 1, got 0
conv.max_pool(X, 2.0) -> TypeError: kernel_size must be an int or
conv.max_pool(X, 2, 0) -> ValueError: stride must be at least 1, got 0
conv.max_pool(X, 3, padding=2)
    -> ValueError: padding must be at most half of the kernel \(3, 3\), got 2
conv.max_pool(X, 6) -> ValueError: no larger than the padded image, \[5, 6\], got \[6, 6\]
conv.max_pool(X, 2, flip=torch.ones(39, dtype=torch.bool))
    -> ValueError: flip must have shape \[40\], got \[39\]
OPS.pool_bits(X.words, [2, 2], [2, 2], [0, 2, 0, 0])
    -> RuntimeError: padding must be less than the kernel, 2, .* got 2
OPS.pool_bits(X.words, [6, 2], [2, 2], [0] * 4)
    -> RuntimeError: kernel must have a kernel no larger than the padded image: 5 along an axis,
        got 6
""",
    "prepared comparisons": r"""
conv.prepare(INFINITE) -> TypeError: conv.prepare: w must be BitImages
conv.prepare(SCALED, bias=torch.ones(7)) -> ValueError: bias .*\[8\], got \[7\]
conv.prepare(SCALED, bias=INFINITE) -> ValueError: bias must not be inf
conv.prepare(BitImages(SCALED.words, 40, INFINITE), threshold=torch.ones(8))
    -> ValueError: conv.prepare: scale of w must not be infinite
conv.prepare(SCALED, added=-1) -> ValueError: added must be at least 0 .* got -1
conv.prepare(SCALED, step=0.3) -> ValueError: step must be a power of two
conv.prepare(BitImages.from_float(torch.ones(1, 65536, 1, 1)), step=1.0)
    -> ValueError: at most 65535 weights an output, got 65536
""",
    "first layers": r"""
conv.fbb(BitImages.from_float(RGB), F, 1.0)
    -> TypeError: conv.fbb: x must be dense float32, .* got BitImages
conv.fbf(RGB.double(), F, 1.0) -> TypeError: or uint8, got torch.float64
conv.fbf(RGB[:, :2], F, 1.0) -> ValueError: x must have shape \[N, 3, H, W\], got \[2, 2, 9, 9\]
conv.fbf(RGB, RGB, 1.0) -> TypeError: conv.fbf: w must be BitImages
conv.fbf(RGB, F, 0.3) -> ValueError: step must be a power of two .* got 0.3
conv.fbf(RGB, F, 0.0) -> ValueError: step must be a power of two .* got 0.0
conv.fbf(RGB, F, -2.0) -> ValueError: step must be a power of two .* got -2
conv.fbf(RGB, F, "1") -> TypeError: step must be a float, got str
conv.fbf(RGB.byte(), F, 0.5) -> ValueError: step must be 1 for uint8 .* 0.5
conv.fbf(torch.ones(1, 65536, 1, 1), BitImages.from_float(torch.ones(1, 65536, 1, 1)), 1.0)
    -> ValueError: w must have at most 65535 weights an output, got 65536
conv.fbb(RGB[..., :2], F, 1.0)
    -> ValueError: conv.fbb: the kernel must be no larger than the padded image
conv.fbb(RGB, F, 1.0, threshold=RGB) -> ValueError: threshold must have
conv.fbf(RGB, F, 1.0, bias=torch.ones(8), integer=True)
    -> ValueError: bias must be None with integer=True
conv.fbf(RGB, F.to("meta"), 1.0) -> ValueError: w must be on cpu
OPS.conv_fbf(RGB, F.words, 0.3, *PLAIN) -> RuntimeError: step must be a power of two
""",
    "patches": r"""
patches.pack(RGB.half(), 5) -> TypeError: x must be a float32 tensor
patches.pack(RGB[0], 5) -> ValueError: x must have shape .*, got \[3, 9, 9\]
patches.pack(RGB, 6) -> ValueError: at most 32 pixels, got \[6, 6\]
patches.pack(RGB[:, :, :4], 5) -> ValueError: no larger than the padded image
patches.pack(RGB, 5, threshold=torch.ones(2))
    -> ValueError: threshold must have shape \[3\], got \[2\]
patches.kernel(BitImages.from_float(torch.ones(1, 1, 7, 7)))
    -> ValueError: patches.kernel: a kernel must have at most 32 pixels, got \[7, 7\]
patches.bbb(patches.pack(RGB, 5), P) -> TypeError: w must be a PatchKernel, got
patches.bbb(patches.pack(RGB[:, :2], 5), patches.kernel(P)) -> ValueError: w must hold 128 channels
OPS.pack_patches(RGB, [6, 6], [1, 1], [0] * 4, [1, 1])
    -> RuntimeError: kernel must have at most 32 pixels, got 6 x 6
OPS.pack_patches(RGB, [5, 5], [1, 0], [0] * 4, [1, 1])
    -> RuntimeError: stride must be at least 1, got 0
""",
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_arguments_are_named(kind):
    check_wrong_calls(WRONG[kind], globals())
