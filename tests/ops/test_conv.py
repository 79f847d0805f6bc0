"""Binary convolution: kernels of every shape, torch's convolution of +-1, sums, comparisons."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from bitgnn.bits import BitImages
from bitgnn.ops import conv
from bitgnn.ops.reference.conv import scaled_dots

SPECIAL = [0.0, -0.0, 1e-40, 3.4e38, -3.4e38, float("nan")]
SIDES = st.tuples(st.integers(1, 9), st.integers(1, 9))
STEPS = st.tuples(st.integers(1, 3), st.integers(1, 3))


def sgn(x):
    return torch.where(x >= 0, 1.0, -1.0).double()


def drawn(*shape, seed=0):
    """Normal numbers on a grid, so that zeros occur."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (x * 4).round() / 4


# Images, height, width, channels, outputs, kernel, stride, padding (top, bottom, left, right), and
# what runs: values, compared bits, pooled ones ("pool" is of windows of 2 x 2), sums with addends.
SHAPES = {
    # Tiles of every size, rows in one piece, in two and round the ring, copies of 4, 8, 16 bytes.
    "a few pixels": (2, 9, 9, 96, 70, 3, 1, 1, "values bits"),
    "two pieces": (3, 7, 7, 512, 128, 3, 1, 1, "values bits"),
    "long rows": (1, 6, 5, 1056, 33, 3, 1, 1, "values bits"),
    "longer than the ring": (1, 3, 3, 4096, 64, 3, 1, 1, "values bits"),
    "8 bytes": (5, 33, 31, 64, 64, 3, 1, 1, "values bits"),
    "middle": (6, 40, 40, 128, 128, 3, 1, 1, "values bits"),
    "large": (9, 57, 60, 32, 130, 3, 1, 1, "values bits"),
    "large kernel": (2, 23, 23, 32, 40, 11, 1, 5, "values bits"),
    "one tap": (3, 20, 20, 256, 96, 1, 1, 0, "values bits"),
    "walk": (20, 60, 61, 64, 64, 3, 1, 1, "values bits"),
    "wide walk": (12, 75, 77, 33, 96, 3, 1, 1, "values bits"),
    "long rows of many pixels": (18, 60, 63, 288, 5, 3, 1, 1, "values bits"),
    # Addends that begin on 16 bytes at every pixel, and others.
    "sums of small images": (8, 7, 7, 512, 512, 3, 1, 1, "sums"),
    "sums": (2, 30, 30, 64, 64, 3, 1, 1, "sums"),
    "sums of odd sizes": (5, 57, 57, 64, 130, 3, 1, 1, "sums"),
    # On a GPU in strips of pixels: cut off at both sides, all borders and none, over many images.
    "walks": (13, 25, 28, 64, 64, 3, 1, 1, "bits pool sums"),
    "two tiles of outputs": (3, 13, 9, 64, 128, 3, 1, 1, "bits pool sums"),
    "stride": (5, 15, 22, 64, 64, 3, 2, 1, "bits pool sums"),
    "no padding": (2, 9, 11, 128, 64, 3, 1, 0, "bits pool sums"),
    "padding of each side": (2, 8, 17, 128, 64, 3, 1, (0, 1, 1, 0), "bits pool sums"),
    "stride of 128 channels": (4, 14, 30, 128, 128, 3, 2, (1, 0, 1, 1), "bits pool sums"),
    "smallest image": (3, 2, 2, 128, 64, 3, 1, 1, "bits pool sums"),
    "one strip": (1, 2, 8, 256, 64, 3, 1, 1, "bits pool sums"),
    "256 channels": (3, 11, 14, 256, 128, 3, 1, 1, "bits pool sums"),
    "stride of 256 channels": (3, 14, 13, 256, 64, 3, 2, 1, "bits pool sums"),
    "512 channels": (5, 7, 7, 512, 64, 3, 1, 1, "bits pool sums"),
    "stride of 512 channels": (2, 8, 9, 512, 128, 3, 2, (1, 1, 1, 0), "bits pool sums"),
    # Pooled tiles of 16, 32 and 64 pixels, sums split over warps, channels that fill no word.
    "strips of odd sizes": (2, 13, 27, 128, 64, 3, 1, 1, "pool"),
    "strips without padding": (2, 9, 10, 128, 64, 3, 1, 0, "pool"),
    "strips": (3, 12, 20, 64, 128, 3, 1, 1, "pool"),
    "even stride": (2, 16, 16, 64, 64, 3, 2, 1, "pool"),
    "many strips": (40, 28, 28, 64, 64, 3, 1, 1, "pool"),
    "8 x 8": (8, 8, 8, 512, 512, 3, 1, 1, "pool"),
    "16 x 16": (8, 16, 16, 256, 256, 3, 1, 1, "pool"),
    "rows over several tiles": (3, 6, 32, 256, 32, 3, 1, 1, "pool"),
    "no whole rows in a tile": (2, 6, 14, 256, 96, 3, 1, 1, "pool"),
    "odd height": (2, 7, 8, 256, 96, 3, 1, 1, "pool"),
    "one window": (1, 2, 2, 33, 40, 3, 1, 1, "pool"),
    "few channels": (2, 8, 8, 3, 5, 3, 1, 1, "pool"),
    "many pixels": (30, 32, 32, 256, 256, 3, 1, 1, "pool"),
    "tall windows": (2, 9, 8, 64, 64, 3, 1, 1, "tall"),
}


@pytest.mark.parametrize("case", SHAPES)
def test_kernels_of_every_shape(case, device, sampler, assert_kernel_equals_reference):
    count, height, width, channels, outputs, size, stride, padding, calls = SHAPES[case]
    draw, sides = sampler(seed=3), [padding] * 4 if isinstance(padding, int) else list(padding)
    # Many images are another launch on a GPU, and the same again on a CPU.
    count = count if device.type == "cuda" else min(count, 2)
    arguments = {
        "x": draw.images(count, channels, height, width),
        "w": draw.images(outputs, channels, size, size),
        "channels": channels, "stride": [stride] * 2, "padding": sides, "dilation": [1, 1],
    }  # fmt: skip
    rows = (height + sides[0] + sides[1] - size) // stride + 1
    columns = (width + sides[2] + sides[3] - size) // stride + 1

    def check(name, **more):
        assert_kernel_equals_reference(name, arguments | more, device)

    threshold, flip = draw.floats(outputs) * 3 * channels**0.5, draw.floats(outputs) > 0
    threshold[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    compared = {"threshold": threshold, "flip": flip}
    if "values" in calls:
        check("conv_bbf", integer=True)
    if "bits" in calls:
        check("conv_bbb", **compared, bias=draw.floats(outputs))
        check("conv_bbb", stride=[2, 2])
        if count * height * width < 10_000:  # pixels without and with all bits
            check("conv_bbb", x=torch.zeros_like(arguments["x"]), **compared)
            check("conv_bbb", x=torch.full_like(arguments["x"], -1), **compared)
    if ("pool" in calls or "tall" in calls) and min(rows, columns) >= 2:
        window = [3, 1] if "tall" in calls else [2, 2]
        pool_flip = draw.bits(1, outputs).flatten()
        check("conv_bbb", pool=window)
        check("conv_bbb", **compared, pool=window, pool_flip=pool_flip)
        weight = BitImages(arguments["w"], channels)
        prepared = conv.prepare(weight, **compared)
        check("conv_bbb", **compared, prepared=prepared, pool=window, pool_flip=pool_flip)
    if "sums" in calls:
        for kept in ({"sums": False}, {"bits": False}, {}):
            check("conv_add", **compared, **kept)
        for channels_of_addend in (outputs, 8, 12, 5):
            for step in (1, 2):
                pixels = (count, step * (rows - 1) + 1, step * columns, channels_of_addend)
                # Totals beyond 16 bits are clamped.
                addend = torch.randint(-33000, 33000, pixels, generator=draw.generator)
                narrow = addend.clamp(-32768, 32767).to(torch.int16)
                more = {"addend": narrow, "addend_stride": [step, step]}
                check("conv_add", **compared, **more)
        check("conv_add", **compared, **more | {"addend": addend.int()}, wide=True)


@given(
    images=st.integers(0, 3),
    groups=st.integers(1, 4),
    channels=st.sampled_from([1, 2, 31, 32, 33, 64]),
    outputs=st.sampled_from([1, 5, 32, 33]),
    size=SIDES,
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=STEPS,
    padding=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    dilation=STEPS,
    seed=st.integers(0, 1000),
)
def test_is_torchs_convolution_of_signs(
    images, groups, channels, outputs, size, kernel, stride, padding, dilation, seed
):
    x = drawn(images, groups * channels, *size, seed=seed)
    w = drawn(groups * outputs, channels, *kernel, seed=seed + 1)
    numbers = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    bits, weight = BitImages.from_float(x), BitImages.from_float(w)
    sides = zip(dilation, kernel, size, padding, strict=True)
    if any(d * (k - 1) + 1 > s + 2 * p for d, k, s, p in sides):
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


@pytest.mark.parametrize("kernel", [(1, 1), (2, 3), (3, 3), (5, 4)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 3), (4, 2)])
@pytest.mark.parametrize("image", [(5, 8), (7, 6)])
def test_same_padding_with_a_stride_is_tensorflows(kernel, stride, image):
    """``ceil(size / stride)`` pixels; what must be added goes half in front, the rest behind."""
    x, w = drawn(2, 33, *image), drawn(4, 33, *kernel, seed=1)
    sides, sizes = [], []
    for size, k, s in zip(image, kernel, stride, strict=True):
        sizes.append(-(-size // s))
        total = max((sizes[-1] - 1) * s + k - size, 0)
        sides.append((total // 2, total - total // 2))
    padded = functional.pad(sgn(x), (*sides[1], *sides[0]))
    expected = functional.conv2d(padded, sgn(w), stride=stride)
    found = conv.bbf(
        BitImages.from_float(x), BitImages.from_float(w), stride=stride, padding="same"
    )
    assert list(found.shape[2:]) == sizes
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


@given(
    images=st.integers(0, 3),
    channels=st.sampled_from([1, 31, 32, 33, 64]),
    outputs=st.sampled_from([1, 5, 32, 33]),
    size=SIDES,
    step=STEPS,
    wide=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_is_torchs_convolution_plus_a_shortcut(images, channels, outputs, size, step, wide, seed):
    x, w = sgn(drawn(images, channels, *size, seed=seed)), sgn(drawn(outputs, channels, 3, 3))
    generator = torch.Generator().manual_seed(seed)
    shape = (images, max(1, outputs // 2), *size)
    addend = torch.randint(-9, 10, shape, generator=generator, dtype=torch.int16)
    threshold = torch.randint(-9, 10, (outputs,), generator=generator).float()
    flip = torch.rand(outputs, generator=generator) < 0.5
    expected = functional.conv2d(x, w, stride=step, padding=1)
    expected[:, : addend.size(1)] += addend[:, :, :: step[0], :: step[1]]
    bits, weight = BitImages.from_float(x), BitImages.from_float(w, scale="mean")
    given = {"stride": step, "padding": 1, "addend_stride": step, "wide": wide}
    given |= {"threshold": threshold, "flip": flip}
    for held in (addend, addend.contiguous(memory_format=torch.channels_last), addend.int()):
        total, compared = conv.add(bits, weight, addend=held, **given)
        assert total.dtype == (torch.int32 if wide else torch.int16)
        assert torch.equal(total.double(), expected)
        turned = (expected >= threshold.view(-1, 1, 1)) ^ flip.view(-1, 1, 1)
        assert torch.equal(compared.to_float() > 0, turned)
    total, compared = conv.add(bits, weight, padding=1)
    assert torch.equal(total.int(), conv.bbf(bits, weight, padding=1, integer=True))
    assert torch.equal(compared.words, conv.bbb(bits, weight, padding=1, scale=False).words)
    sums, none = conv.add(bits, weight, padding=1, bits=False)
    assert torch.equal(sums, total)
    assert none is None
    none, words = conv.add(bits, weight, padding=1, sums=False)
    assert none is None
    assert torch.equal(words.words, compared.words)


def test_narrow_sums_are_clamped_and_bits_are_not():
    x, w = (BitImages.from_float(torch.ones(n, 64, 1, 3 - n)) for n in (1, 2))

    def added(*values, dtype, **given):
        addend = torch.tensor(values, dtype=dtype).view(1, 2, 1, 1).expand(1, 2, 1, 2)
        total, bits = conv.add(x, w, addend=addend, **given)
        return total[0, :, 0].tolist(), bool((bits.to_float() == 1).all())

    bound = torch.tensor([32764.0, -32704.0])
    found = added(32700, -32768, dtype=torch.int16, threshold=bound)
    assert found == ([[32764] * 2, [-32704] * 2], True)
    bound = torch.tensor([40064.0, -39936.0])
    found = added(40000, -40000, dtype=torch.int32, threshold=bound)
    assert found == ([[32767] * 2, [-32768] * 2], True)
    found, _ = added(40000, -40000, dtype=torch.int32, wide=True)
    assert found == [[40064] * 2, [-39936] * 2]


@pytest.mark.parametrize("size", [(0, 4, 4), (2, 0, 3), (1, 1, 0), (1, 1, 1)])
def test_images_without_pixels_have_sums_of_nothing(size):
    images, height, width = size
    x, weight = drawn(images, 33, height, width), BitImages.from_float(drawn(40, 33, 3, 3))
    # A single pixel meets each tap once; where there is none every tap lies outside.
    expected = torch.zeros(images, 40, height + 2, width + 2)
    if x.numel():
        expected = functional.conv2d(sgn(x).float(), weight.to_float(), padding=2)
    total, bits = conv.add(BitImages.from_float(x), weight, padding=2)
    assert torch.equal(total.float(), expected)
    assert torch.equal(bits.to_float() > 0, expected >= 0)
    x = sgn(x).float()
    assert torch.equal(conv.fbf(x, weight, 1.0, padding=2), expected)
    assert torch.equal(conv.fbb(x, weight, 1.0, padding=2).words, bits.words)


def test_no_images(device):
    x = BitImages(torch.zeros((0, 6, 6, 2), dtype=torch.int32), 64).to(device)
    w = BitImages.from_float(drawn(64, 64, 3, 3)).to(device)
    assert conv.bbb(x, w, padding=1, pool=2).shape == (0, 64, 3, 3)


def assert_decides(prepared, bound, w_scale, bias, threshold, flip, step=1.0):
    """Every total of small bounds, else the neighbours of the limit and the ends."""
    limit, turned = prepared[:, -2].long(), prepared[:, -1].bool()
    assert ((limit >= -bound) & (limit <= bound + 1)).all()
    if bound <= 4096:
        totals = torch.arange(-bound, bound + 1).view(-1, 1).expand(-1, len(limit))
    else:
        near = torch.stack([limit + k for k in (-2, -1, 0, 1)])
        ends = torch.tensor([-bound, -1, 0, 1, bound]).view(-1, 1).expand(-1, len(limit))
        totals = torch.cat([near, ends]).clamp(-bound, bound)
    value = scaled_dots(totals, w_scale, bias, step)
    bits = value >= (0 if threshold is None else threshold)
    bits = bits if flip is None else bits ^ flip
    assert torch.equal((totals >= limit) ^ turned, bits)


@given(
    outputs=st.integers(1, 40),
    channels=st.sampled_from([1, 3, 32, 33, 100]),
    kernel=STEPS,
    given=st.tuples(*[st.booleans()] * 4),
    added=st.sampled_from([0, 5, 32768]),
    special=st.booleans(),
    seed=st.integers(0, 10**5),
)
def test_limits_are_the_comparison(outputs, channels, kernel, given, added, special, seed, sampler):
    draw = sampler(seed=seed)
    values = draw.floats(outputs, channels, *kernel)
    vectors = torch.stack([draw.floats(outputs) * 2 for _ in range(3)])
    for value in SPECIAL if special and outputs > 1 else []:
        vectors[:, draw.integer(outputs)] = value
    scale, bias, threshold = (v if g else None for v, g in zip(vectors, given[:3], strict=True))
    flip = draw.floats(outputs) > 0 if given[3] else None
    w = BitImages(BitImages.from_float(values).words, channels, scale)
    taps = (values >= 0).sum(1).flatten(1)
    used = scale if bias is not None or threshold is not None else None
    for step, factor in ((None, 1), (2.0**-7, 32768)):
        options = {"bias": bias, "threshold": threshold, "flip": flip, "step": step}
        prepared = conv.prepare(w, added=added, **options)
        assert prepared.dtype == torch.int32
        assert torch.equal(prepared[:, :-2].long(), taps)
        bound = factor * taps.size(1) * channels + added
        assert_decides(prepared, bound, used, bias, threshold, flip, step or 1.0)


@pytest.mark.parametrize("channels", [1, 32, 33])
def test_pixels_outside_count_as_minus_one(channels, device):
    x = torch.randn(2, channels, 5, 4, device=device)
    w = torch.randn(6, channels, 3, 2, device=device)
    frame = functional.pad(sgn(x), (1, 1, 2, 2), value=-1.0)
    expected = functional.conv2d(frame.double().cpu(), sgn(w).double().cpu(), stride=2)
    padded = conv.pad(BitImages.from_float(x), (2, 1))
    assert torch.equal(padded.to_float(), frame)
    found = conv.bbf(padded, BitImages.from_float(w), stride=2)
    assert torch.equal(found.double().cpu(), expected)
    with pytest.raises(ValueError, match=r"conv\.pad: padding must be at least 0, got -1"):
        conv.pad(padded, -1)
    with pytest.raises(TypeError, match=r"conv\.pad: x must be BitImages"):
        conv.pad(x, 1)
