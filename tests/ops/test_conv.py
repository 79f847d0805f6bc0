"""Binary convolution: its tiles, torch's convolution of +-1, packing, clear errors."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from wrong_calls import check_wrong_calls

from bitgnn.bits import BitImages
from bitgnn.ops import conv
from bitgnn.ops.reference import OPERATORS

CPU = torch.device("cpu")
LAYOUTS = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "part of an image": lambda x: functional.pad(x, (1, 2, 1, 0))[:, :, 1:, 1:-2],
    "every other": lambda x: torch.stack([x, x], dim=4).flatten(3)[..., ::2],
}


def sgn(x: Tensor) -> Tensor:
    return torch.where(x >= 0, 1.0, -1.0).double()


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers on a grid, so that zeros occur."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (x * 4).round() / 4


# Tiles of every size, rows in one piece, in two and round the ring, copies of 4, 8 and 16 bytes.
TILES = {
    "a few pixels": (2, 9, 9, 96, 70, 3),
    "two pieces": (3, 7, 7, 512, 128, 3),
    "long rows": (1, 6, 5, 1056, 33, 3),
    "longer than the ring": (1, 3, 3, 4096, 64, 3),
    "8 bytes": (5, 33, 31, 64, 64, 3),
    "middle": (6, 40, 40, 128, 128, 3),
    "large": (9, 57, 60, 32, 130, 3),
    "large kernel": (2, 23, 23, 32, 40, 11),
    "one tap": (3, 20, 20, 256, 96, 1),
    "walk": (20, 60, 61, 64, 64, 3),
    "wide walk": (12, 75, 77, 33, 96, 3),
    "long rows of many pixels": (18, 60, 63, 288, 5, 3),
}


@pytest.mark.parametrize("case", TILES)
def test_tiles(case, device, sampler, assert_kernel_equals_reference):
    count, height, width, channels, outputs, size = TILES[case]
    draw = sampler(seed=3)
    arguments = {
        "x": draw.images(count, channels, height, width),
        "w": draw.images(outputs, channels, size, size),
        "channels": channels,
        "stride": [1, 1],
        "padding": [size // 2] * 4,
        "dilation": [1, 1],
    }
    assert_kernel_equals_reference("conv_bbf", arguments | {"integer": True}, device)
    compared = {"threshold": draw.floats(outputs), "bias": draw.floats(outputs)}
    assert_kernel_equals_reference("conv_bbb", arguments | compared, device)
    assert_kernel_equals_reference("conv_bbb", arguments | {"stride": [2, 2]}, device)


@pytest.mark.parametrize("groups", [2, 3, 8])
@pytest.mark.parametrize(("channels", "outputs"), [(1, 1), (32, 32), (64, 33), (33, 64), (5, 7)])
def test_groups(groups, channels, outputs, device, sampler, assert_kernel_equals_reference):
    draw = sampler(seed=groups)
    arguments = {
        "x": draw.images(2, groups * channels, 9, 10),
        "w": draw.images(groups * outputs, channels, 3, 3),
        "channels": groups * channels,
        "stride": [1, 1],
        "padding": [1, 0, 1, 2],
        "dilation": [1, 1],
        "groups": groups,
    }
    compared = {"threshold": draw.floats(groups * outputs)}
    assert_kernel_equals_reference("conv_bbb", arguments | compared, device)
    assert_kernel_equals_reference("conv_bbf", arguments | {"integer": True}, device)


@given(
    images=st.integers(0, 3),
    groups=st.integers(1, 4),
    channels=st.sampled_from([1, 2, 31, 32, 33, 64]),
    outputs=st.sampled_from([1, 5, 32, 33]),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    seed=st.integers(0, 1000),
)
def test_is_torchs_convolution_of_signs(
    images, groups, channels, outputs, size, kernel, stride, padding, dilation, seed
):
    x = drawn(images, groups * channels, *size, seed=seed)
    w = drawn(groups * outputs, channels, *kernel, seed=seed + 1)
    numbers = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    bits, weight = BitImages.from_float(x), BitImages.from_float(w)
    if any(
        d * (k - 1) + 1 > s + 2 * p
        for d, k, s, p in zip(dilation, kernel, size, padding, strict=True)
    ):
        with pytest.raises(ValueError, match="the kernel must be no larger than the padded image"):
            conv.bbf(bits, weight, **numbers)
        return
    expected = functional.conv2d(sgn(x), sgn(w), None, **numbers)
    found = conv.bbf(bits, weight, integer=True, **numbers)
    assert found.dtype == torch.int32
    assert found.shape == expected.shape
    assert torch.equal(found.double(), expected)
    # Ties give +1.
    assert torch.equal(conv.bbb(bits, weight, **numbers).to_float().double(), sgn(expected))


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (2, 1), (3, 1), (4, 3), ((2, 5), (2, 1))])
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_named_padding_is_torchs(kernel, dilation, padding):
    pair = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    x, w = drawn(2, 33, 11, 12), drawn(5, 33, *pair, seed=1)
    given = {"padding": padding, "dilation": dilation}
    expected = functional.conv2d(sgn(x), sgn(w), **given)
    found = conv.bbf(BitImages.from_float(x), BitImages.from_float(w), **given)
    assert torch.equal(found.double(), expected)


def test_scale_bias_threshold_and_flip(device):
    x, w = drawn(2, 40, 9, 9).to(device), drawn(37, 40, 3, 3, seed=1).to(device)
    bias, threshold = torch.randn(2, 37).to(device)
    flip = (torch.rand(37) < 0.5).to(device)
    bits, weight = BitImages.from_float(x), BitImages.from_float(w, scale="mean")
    torch.testing.assert_close(weight.scale, w.abs().mean((1, 2, 3)))
    dot = functional.conv2d(sgn(x).cpu(), sgn(w).cpu(), padding=1).float().to(device)
    scale, shift, bound = (v.view(-1, 1, 1) for v in (weight.scale, bias, threshold))
    found = conv.bbf(bits, weight, padding=1, bias=bias)
    assert torch.equal(found, scale * dot + shift)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(conv.bbf(bits, weight, padding=1, scale=False), dot)
    found = conv.bbb(bits, weight, padding=1, bias=bias, threshold=threshold, flip=flip)
    expected = (scale * dot + shift >= bound) ^ flip.view(-1, 1, 1)
    assert torch.equal(found.to_float() > 0, expected)
    assert found.words[..., -1].bitwise_right_shift(37 % 32).eq(0).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8]
)
def test_packing(layout, dtype, device):
    for channels in (1, 31, 32, 33, 100):
        x = drawn(2, channels, 13, 11)
        x = (x * 8 + 8).clamp(0, 255) if dtype == torch.uint8 else x
        x = LAYOUTS[layout](x.to(dtype))
        for bound in (None, drawn(channels, seed=1).abs()):
            expected = OPERATORS["pack_images"](x, bound)
            moved = None if bound is None else bound.to(device)
            assert torch.equal(torch.ops.bitgnn.pack_images(x.to(device), moved).cpu(), expected)
        assert torch.equal(BitImages.from_float(x.to(device)).to_float().cpu().double(), sgn(x))


@pytest.mark.parametrize("shape", [(0, 5, 4, 4), (3, 70, 1, 1), (2, 5, 0, 4), (1, 33, 300, 1)])
def test_packing_of_odd_shapes(shape, device):
    x = drawn(*shape).to(device)
    bits = BitImages.from_float(x)
    assert bits.shape == shape
    assert torch.equal(bits.to_float().double(), sgn(x))


def test_packing_of_special_values(device):
    special = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-45, -1e-45])
    special = special.to(device)
    expected = [1, 1, -1, 1, -1, 1, -1]
    for x in (special.view(1, 7, 1, 1), special.view(1, 1, 7, 1), special.view(1, 1, 1, 7)):
        assert BitImages.from_float(x).to_float().flatten().tolist() == expected
        with pytest.raises(ValueError, match=r"BitImages\.from_float: x must be finite"):
            BitImages.from_float(x, check_finite=True)
    # Compared in float64, where rounding would move it onto the threshold.
    close = torch.full((1, 1, 1, 2), 1.0 - 1e-12, dtype=torch.float64, device=device)
    assert BitImages.from_float(close, torch.ones(1, device=device)).to_float().eq(-1).all()


def test_one_and_many_threads_agree():
    x = BitImages.from_float(drawn(3, 96, 20, 21))
    w = BitImages.from_float(drawn(144, 32, 3, 3, seed=1))
    one = BitImages.from_float(drawn(1, 64, 3, 3))
    wide = BitImages.from_float(drawn(2000, 64, 3, 3, seed=1))
    found = []
    threads = torch.get_num_threads()
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        found.append((conv.bbb(x, w, padding=1, groups=3).words, conv.bbb(one, wide).words))
    torch.set_num_threads(threads)
    for many in found[1:]:
        assert all(map(torch.equal, many, found[0]))


def test_compile_whole_graph():
    w = BitImages.from_float(drawn(40, 33, 3, 3), scale="mean")

    def layer(x: Tensor) -> Tensor:
        hidden = conv.bbb(BitImages.from_float(x), w, padding="same", threshold=torch.ones(40))
        return hidden.to_float()

    x = drawn(2, 33, 8, 9)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), layer(x))


X = BitImages.from_float(torch.ones(2, 40, 5, 6))
W = BitImages.from_float(torch.ones(8, 40, 3, 3))
FLOATS = torch.ones(2, 40, 5, 6)
WORDS = X.words, W.words, 40
WRONG = r"""
conv.bbb(FLOATS, W) -> TypeError: conv.bbb: x must be BitImages, got torch.float
conv.bbf(X, FLOATS) -> TypeError: conv.bbf: w must be BitImages, got torch.float
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
conv.bbf(X, W, padding="same", stride=2)
    -> ValueError: 'same' with stride 1, got 'same' with stride \(2, 2\)
conv.bbb(X, W, dilation=3)
    -> ValueError: conv.bbb: the kernel must be no larger than the padded image, \[5, 6\], got \[3,
        3\]
conv.bbf(BitImages.from_float(FLOATS, scale="mean"), W) -> ValueError: x must hold no scale
conv.bbf(X, W, bias=torch.ones(7)) -> ValueError: bias .*\[8\], got \[7\]
conv.bbb(X, W, flip=torch.ones(8)) -> TypeError: flip must be a torch.bool
conv.bbf(X, W, bias=torch.ones(8), integer=True) -> ValueError: bias must be None with integer=True
conv.bbf(X, W.to("meta")) -> ValueError: w must be on cpu .* got meta
BitImages.from_float(FLOATS.int())
    -> TypeError: BitImages.from_float: x must be dense floating point or uint8, got torch.int32
BitImages.from_float(FLOATS.to_sparse()) -> TypeError: x must be dense floating point
BitImages.from_float(FLOATS[0])
    -> ValueError: x must have shape \[N, C, H, W\] with C >= 1, got \[40, 5, 6\]
BitImages.from_float(FLOATS, torch.ones(39))
    -> ValueError: threshold must have shape \[40\] like x's channels, got \[39\]
BitImages.from_float(FLOATS, scale="max") -> ValueError: got 'max'
BitImages(X.words.long(), 40) -> TypeError: words must be an int32
BitImages(X.words, 65) -> ValueError: \[N, H, W, 3\] for 65 channels
BitImages(X.words[..., :0], 0) -> ValueError: channels must be >= 1
BitImages(X.words, 40, torch.ones(3)) -> ValueError: BitImages: scale .*\[2\], got
torch.ops.bitgnn.conv_bbf(FLOATS, W.words, 40, [1, 1], [0] * 4, [1, 1])
    -> RuntimeError: conv_bbf: x must be Int, got Float
torch.ops.bitgnn.conv_bbf(X.words, W.words[..., :1], 40, [1, 1], [0] * 4, [1, 1])
    -> RuntimeError: w must hold 2 words a pixel for 40 channels, got 1
torch.ops.bitgnn.conv_bbf(*WORDS, [0, 1], [0] * 4, [1, 1])
    -> RuntimeError: stride must be at least 1, got 0
torch.ops.bitgnn.conv_bbf(*WORDS, [1, 1], [0] * 2, [1, 1])
    -> RuntimeError: padding must hold 4 numbers, got 2
torch.ops.bitgnn.conv_bbb(*WORDS, [1, 1], [0] * 4, [3, 3])
    -> RuntimeError: no larger than the padded image: 5 along an axis, got 7
torch.ops.bitgnn.conv_bbb(*WORDS, [1, 1], [0] * 4, [1, 1], 3)
    -> RuntimeError: channels must be a positive multiple of groups, 3, got 40
"""


def test_wrong_arguments_are_named():
    check_wrong_calls(WRONG, globals())
