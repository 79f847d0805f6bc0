"""Convolution with residual sums: the reference, torch's convolution, clamping, clear errors."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from wrong_calls import check_wrong_calls

from bitgnn.bits import BitImages
from bitgnn.ops import conv


def signs(*shape: int, seed: int = 0) -> Tensor:
    draw = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
    return torch.where(draw < 0.5, -1.0, 1.0)


# Tiles of every size; addends that begin on 16 bytes at every pixel, and others.
@pytest.mark.parametrize("shape", [(8, 7, 512, 512), (2, 30, 64, 64), (5, 57, 64, 130)])
@pytest.mark.parametrize("kind", [torch.int16, torch.int32])
def test_tiles(shape, kind, device, sampler, assert_kernel_equals_reference):
    count, size, channels, outputs = shape
    draw = sampler(seed=size)
    given = {
        "x": draw.images(count, channels, size, size),
        "w": draw.images(outputs, channels, 3, 3),
        "channels": channels,
        "stride": [1, 1],
        "padding": [1, 1, 1, 1],
        "dilation": [1, 1],
        "threshold": draw.floats(outputs),
        "wide": kind == torch.int32,
    }
    for of_addend in (outputs, outputs // 2, 5):
        for step in (1, 2):
            pixels = (count, step * size, step * size, of_addend)
            drawn = torch.randint(-300, 300, pixels, generator=draw.generator).to(kind)
            more = {"addend": drawn, "addend_stride": [step, step]}
            assert_kernel_equals_reference("conv_add", given | more, device)


@given(
    images=st.integers(0, 3),
    channels=st.sampled_from([1, 31, 32, 33, 64]),
    outputs=st.sampled_from([1, 5, 32, 33]),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    step=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    wide=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_is_torchs_convolution_plus_a_shortcut(images, channels, outputs, size, step, wide, seed):
    x, w = signs(images, channels, *size, seed=seed), signs(outputs, channels, 3, 3, seed=seed + 1)
    dot = functional.conv2d(x, w, stride=step, padding=1)
    generator = torch.Generator().manual_seed(seed)
    shape = (images, max(1, outputs // 2), *size)
    addend = torch.randint(-9, 10, shape, generator=generator, dtype=torch.int16)
    threshold = torch.randint(-9, 10, (outputs,), generator=generator).float()
    flip = torch.rand(outputs, generator=generator) < 0.5
    expected = dot.clone()
    expected[:, : addend.size(1)] += addend[:, :, :: step[0], :: step[1]]
    bits, weight = BitImages.from_float(x), BitImages.from_float(w, scale="mean")
    layouts = addend, addend.contiguous(memory_format=torch.channels_last)
    for given_addend in (*layouts, addend.int()):
        total, compared = conv.add(
            bits,
            weight,
            stride=step,
            padding=1,
            addend=given_addend,
            addend_stride=step,
            threshold=threshold,
            flip=flip,
            wide=wide,
        )
        assert total.dtype == (torch.int32 if wide else torch.int16)
        assert torch.equal(total.float(), expected)
        turned = (expected >= threshold.view(-1, 1, 1)) ^ flip.view(-1, 1, 1)
        assert torch.equal(compared.to_float() > 0, turned)


def test_what_is_not_asked_for_is_left_out():
    x, w = BitImages.from_float(signs(2, 40, 5, 6)), BitImages.from_float(signs(33, 40, 3, 3))
    total, bits = conv.add(x, w, padding=1)
    assert conv.add(x, w, padding=1, sums=False)[0] is None
    assert torch.equal(conv.add(x, w, padding=1, sums=False)[1].words, bits.words)
    assert conv.add(x, w, padding=1, bits=False)[1] is None
    assert torch.equal(conv.add(x, w, padding=1, bits=False)[0], total)
    assert torch.equal(total.int(), conv.bbf(x, w, padding=1, integer=True))
    assert torch.equal(bits.words, conv.bbb(x, w, padding=1).words)


def test_narrow_sums_are_clamped_and_bits_are_not():
    x, w = (
        BitImages.from_float(torch.ones(1, 64, 1, 2)),
        BitImages.from_float(torch.ones(2, 64, 1, 1)),
    )
    addend = torch.tensor([32700, -32768], dtype=torch.int16).view(1, 2, 1, 1).expand(1, 2, 1, 2)
    bound = torch.tensor([32764.0, -32704.0])
    total, bits = conv.add(x, w, addend=addend, threshold=bound)
    assert total[0, :, 0].tolist() == [[32764] * 2, [-32704] * 2]
    assert (bits.to_float() == 1).all()
    addend = torch.tensor([40000, -40000], dtype=torch.int32).view(1, 2, 1, 1).expand(1, 2, 1, 2)
    total, bits = conv.add(x, w, addend=addend, threshold=torch.tensor([40064.0, -39936.0]))
    assert total[0, :, 0].tolist() == [[32767] * 2, [-32768] * 2]
    assert (bits.to_float() == 1).all()
    total, _ = conv.add(x, w, addend=addend, wide=True)
    assert total[0, :, 0].tolist() == [[40064] * 2, [-39936] * 2]


@pytest.mark.parametrize("size", [(0, 4, 4), (2, 0, 3), (1, 1, 0), (1, 1, 1)])
def test_images_without_pixels_have_sums_of_nothing(size):
    images, height, width = size
    x = signs(images, 33, height, width)
    weight = BitImages.from_float(signs(40, 33, 3, 3))
    pixels = images, 40, height + 2, width + 2
    # A single pixel meets each tap once; where there is none every tap lies outside.
    expected = torch.zeros(pixels)
    if x.numel():
        expected = functional.conv2d(x, weight.to_float(), padding=2)
    total, bits = conv.add(BitImages.from_float(x), weight, padding=2)
    assert torch.equal(total.float(), expected)
    assert torch.equal(bits.to_float() > 0, expected >= 0)
    assert torch.equal(conv.fbf(x, weight, 1.0, padding=2), expected)
    assert torch.equal(conv.fbb(x, weight, 1.0, padding=2).words, bits.words)


X = BitImages.from_float(torch.ones(2, 40, 6, 8))
W = BitImages.from_float(torch.ones(8, 40, 3, 3))
SUMS = torch.ones(2, 8, 4, 6, dtype=torch.int16)
OP = torch.ops.bitgnn.conv_add
NUMBERS = X.words, W.words, 40, [1, 1], [0] * 4, [1, 1], 1
WRONG = r"""
conv.add(SUMS, W) -> TypeError: conv.add: x must be BitImages, got torch.int16
conv.add(X, W, sums=False, bits=False) -> ValueError: sums or bits must be asked for, got neither
conv.add(X, W, addend=SUMS.float())
    -> TypeError: conv.add: addend must be an int16 or int32 tensor, got torch.float32
conv.add(X, W, addend=torch.ones(2, 9, 4, 6, dtype=torch.int16))
    -> ValueError: addend must have shape \[2, at most 8, h, w\] .* got \[2, 9, 4, 6\]
conv.add(X, W, addend=SUMS[:1]) -> ValueError: got \[1, 8, 4, 6\]
conv.add(X, W, addend=SUMS, addend_stride=2)
    -> ValueError: with 4 x 6 pixels at strides \[2, 2\], got \[2, 8, 4, 6\]
conv.add(X, W, addend=SUMS, addend_stride=0) -> ValueError: addend_stride must be at least 1, got 0
conv.add(X, W, addend=SUMS.to("meta")) -> ValueError: addend must be
conv.add(X, W, threshold=torch.ones(7)) -> ValueError: threshold .*\[8\], got \[7\]
conv.add(X, W, prepared=torch.ones(8, 11))
    -> TypeError: conv.add: prepared must be a torch.int32 tensor, got torch.float32
conv.add(X, W, prepared=torch.ones(8, 10, dtype=torch.int32))
    -> ValueError: prepared must have shape \[8, 11\] for 8 kernels of 3 x 3, got \[8, 10\]
OP(*NUMBERS, SUMS.float()) -> RuntimeError: conv_add: addend must be Short or Int, got Float
OP(*NUMBERS, torch.ones(2, 3, 6, 8, dtype=torch.int16))
    -> RuntimeError: addend must have 4 rows at stride 1 like the result, got 3
OP(*NUMBERS, torch.ones(2, 4, 6, 9, dtype=torch.int16))
    -> RuntimeError: at most as many channels as the result, 8, got 9
OP(*NUMBERS, None, prepared=torch.ones(8, 10, dtype=torch.int32))
    -> RuntimeError: columns of prepared must be 11, got 10
"""


def test_wrong_arguments_are_named():
    check_wrong_calls(WRONG, globals())
