"""Packing and pooling of images, first layers in fixed point, patches, prepared comparisons."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from bitgnn.bits import BitImages
from bitgnn.ops import conv, patches
from bitgnn.ops.reference import OPERATORS

LAYOUTS = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "part of an image": lambda x: functional.pad(x, (1, 2, 1, 0))[:, :, 1:, 1:-2],
    "every other": lambda x: torch.stack([x, x], dim=4).flatten(3)[..., ::2],
}
NAN, INF = float("nan"), float("inf")
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SIDES = st.tuples(st.integers(1, 4), st.integers(1, 4))


def sgn(x):
    return torch.where(x >= 0, 1.0, -1.0).double()


def drawn(*shape, seed=0):
    """Normal numbers on a grid, so that zeros occur."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (x * 4).round() / 4


def packed(*shape, seed=0, scale=None):
    return BitImages.from_float(drawn(*shape, seed=seed), scale=scale)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.uint8])
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
    bits = packed(*shape).to(device)
    assert bits.shape == shape
    assert torch.equal(bits.to_float().cpu().double(), sgn(drawn(*shape)))


def test_packing_of_special_values(device):
    special = torch.tensor([0.0, -0.0, NAN, INF, -INF, 1e-45, -1e-45]).to(device)
    expected = [1, 1, -1, 1, -1, 1, -1]
    for x in (special.view(1, 7, 1, 1), special.view(1, 1, 7, 1), special.view(1, 1, 1, 7)):
        assert BitImages.from_float(x).to_float().flatten().tolist() == expected
        with pytest.raises(ValueError, match=r"BitImages\.from_float: x must be finite"):
            BitImages.from_float(x, check_finite=True)
    # Compared in float64, where rounding would move it onto the threshold.
    close = torch.full((1, 1, 1, 2), 1.0 - 1e-12, dtype=torch.float64, device=device)
    assert BitImages.from_float(close, torch.ones(1, device=device)).to_float().eq(-1).all()


@given(
    images=st.integers(0, 3),
    channels=st.sampled_from([1, 31, 32, 33, 64, 512]),
    kernel=SIDES,
    more=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    stride=st.none() | st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padded=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_is_torchs_pooling_of_signs(images, channels, kernel, more, stride, padded, seed, device):
    bits = packed(images, channels, kernel[0] + more[0], kernel[1] + more[1], seed=seed)
    flip = drawn(channels, seed=seed) > 0
    padding = (kernel[0] // 2, kernel[1] // 2) if padded else 0
    turned = torch.where(flip, -1.0, 1.0).view(-1, 1, 1)
    for mark, sign in ((None, torch.ones(1)), (flip, turned)):
        expected = functional.max_pool2d(sign * bits.to_float(), kernel, stride, padding) * sign
        mark = None if mark is None else mark.to(device)
        found = conv.max_pool(bits.to(device), kernel, stride, padding, flip=mark)
        assert torch.equal(found.to_float().cpu(), expected)
        if channels % 32:
            assert found.words[..., -1].bitwise_right_shift(channels % 32).eq(0).all()


@pytest.mark.parametrize(
    ("shape", "outputs", "kernel", "stride", "padding"),
    [
        ((2, 3, 224, 224), 64, 7, 4, 3),
        ((1, 3, 224, 224), 33, 11, 4, 5),
        ((3, 3, 32, 32), 128, 3, 1, 1),
        ((5, 784, 1, 1), 1024, 1, 1, 0),
        ((300, 784, 1, 1), 40, 1, 1, 0),
        ((1, 3, 1, 1), 5, 1, 2, 1),
        ((2, 1, 28, 28), 6, (5, 1), (1, 2), (0, 3)),
    ],
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_first_layers_are_torchs_convolution(
    shape, outputs, kernel, stride, padding, layout, device
):
    pair = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    w = drawn(outputs, shape[1], *pair, seed=1)
    weight = BitImages.from_float(w, scale="mean")
    numbers = {"stride": stride, "padding": padding}
    pixels = (drawn(*shape, seed=2) * 64).abs().to(torch.uint8)
    normal = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    for x, step in ((normal, 2.0**-8), (pixels, 1.0), (normal.half(), 0.25)):
        fixed = (x.double() / step).round().clamp(-32768, 32767)
        dot = functional.conv2d(fixed, sgn(w), **numbers)
        x, moved = x.contiguous(memory_format=layout).to(device), weight.to(device)
        found = conv.fbf(x, moved, step, integer=True, **numbers)
        assert found.dtype == torch.int32
        assert torch.equal(found.cpu().double(), dot)
        values = weight.scale.view(-1, 1, 1) * (step * dot.float())
        assert torch.equal(conv.fbf(x, moved, step, **numbers).cpu(), values)
        bits = conv.fbb(x, moved, step, **numbers)
        assert torch.equal(bits.to_float().cpu().double(), sgn(dot))
        prepared = conv.prepare(moved, step=step)
        assert torch.equal(conv.fbb(x, moved, step, prepared=prepared, **numbers).words, bits.words)


FORMS = {
    "signed bytes": lambda q: q % 256 - 128,
    "unsigned bytes": lambda q: q % 256,
    "multiples of 64": lambda q: (q % 256 - 128) * 64,
    "unsigned multiples of 64": lambda q: q % 256 * 64,
    "negative multiples of 256": lambda q: -(q % 100) * 256,
    "high bytes": lambda q: q % 128 * 256,
    "the lowest": lambda q: q * 0 - 32768,
    "nothing": lambda q: q * 0,
    "all": lambda q: q % 65536 - 32768,
    "nine bits": lambda q: q % 512 - 256,
}
"""Integers that one byte holds, without the zero bits that they end in, or that take two."""


@pytest.mark.parametrize("form", [*FORMS, "one image each"])
@pytest.mark.parametrize(
    ("shape", "outputs", "kernel"),
    [((70, 100, 1, 1), 300, 1), ((40, 784, 1, 1), 1024, 1), ((11, 3, 12, 12), 70, 3)],
)
def test_integers_of_one_byte_and_of_two(form, shape, outputs, kernel, device):
    random = torch.randint(1 << 20, shape, generator=torch.Generator().manual_seed(3))
    if form in FORMS:
        q = FORMS[form](random)
    else:
        forms = list(FORMS.values())
        q = torch.stack([forms[i % len(forms)](image) for i, image in enumerate(random)])
    w = drawn(outputs, shape[1], kernel, kernel, seed=1)
    dot = functional.conv2d(q.double(), sgn(w))
    step = 2.0**-12
    x, weight = (q * step).float().to(device), BitImages.from_float(w).to(device)
    assert torch.equal(conv.fbf(x, weight, step, integer=True).cpu().double(), dot)
    threshold = dot.float().flatten(2).median(2).values.median(0).values * step + step / 2
    comparison = {"threshold": threshold.to(device)}
    bits = conv.fbb(x, weight, step, **comparison)
    limits = conv.prepare(weight, step=step, **comparison)
    prepared = conv.fbb(x, weight, step, **comparison, prepared=limits)
    assert torch.equal(bits.to_float().cpu() > 0, dot * step >= threshold.view(-1, 1, 1))
    assert torch.equal(prepared.words, bits.words)


def test_rounding_and_special_values_in_fixed_point(device):
    values = [0.5, 1.5, 2.5, -0.5, -1.5, 0.499, 40000.0, -40000.0, NAN, INF]
    expected = [0, 2, 2, 0, -2, 0, 32767, -32768, 0, 32767]
    w = BitImages.from_float(torch.ones(1, 1, 1, 1)).to(device)
    for step in (1.0, 2.0**-7, 4.0):
        x = (torch.tensor(values).view(1, 1, 1, -1) * step).to(device)
        assert conv.fbf(x, w, step, integer=True).flatten().tolist() == expected
        assert torch.equal(conv.fbf(x, w, step).flatten().cpu(), torch.tensor(expected) * step)


def test_sums_reach_both_ends_of_int32(device):
    x = torch.full((1, 65535, 1, 1), 1e9, device=device)
    for sign in (1.0, -1.0):
        w = BitImages.from_float(torch.full((2, 65535, 1, 1), sign)).to(device)
        assert conv.fbf(x, w, 1.0, integer=True).flatten().tolist() == [sign * 65535 * 32767] * 2
        assert conv.fbf(-x, w, 1.0, integer=True).flatten().tolist() == [-sign * 65535 * 32768] * 2


def test_never_true_is_beyond_the_greatest_total():
    w = BitImages(BitImages.from_float(torch.ones(2, 5, 1, 1)).words, 5, torch.tensor([1.0, -1.0]))
    prepared = conv.prepare(w, threshold=torch.tensor([NAN, NAN]))
    assert prepared.tolist() == [[5, 6, 0], [5, 6, 0]]


@pytest.mark.parametrize("outputs", [1, 33, 64, 160])
@pytest.mark.parametrize("special", [[], [0.0, -0.0, 1e-40, 3.4e38, -3.4e38]])
def test_operators_take_prepared_comparisons(outputs, special, device):
    images, w = packed(2, 40, 6, 6).to(device), packed(outputs, 40, 3, 3, scale="mean").to(device)
    threshold = 16 * drawn(outputs, seed=3)
    threshold[: len(special)] = torch.tensor(special[:outputs])
    given = {"threshold": threshold.to(device), "padding": 1}
    for run, scale in ((conv.bbb, True), (lambda *a, **k: conv.add(*a, **k)[1], False)):
        prepared = conv.prepare(w, scale=scale, threshold=given["threshold"])
        found = run(images, w, **given, prepared=prepared)
        assert torch.equal(found.words, run(images, w, **given).words)
    assert torch.equal(conv.bbf(images, w, prepared=prepared), conv.bbf(images, w))
    prepared = conv.prepare(w, threshold=given["threshold"], step=0.25)
    found = conv.fbb(images.to_float(), w, 0.25, **given, prepared=prepared)
    assert torch.equal(found.words, conv.fbb(images.to_float(), w, 0.25, **given).words)


def test_one_and_many_threads_agree():
    x, wide = drawn(3, 3, 40, 41), packed(2000, 64, 3, 3, seed=1)
    calls = [
        lambda: conv.bbb(packed(3, 96, 20, 21), packed(144, 32, 3, 3), padding=1, groups=3),
        lambda: conv.bbb(packed(1, 64, 3, 3), wide),
        lambda: conv.fbb(x, packed(70, 3, 7, 7, seed=1), 0.125, stride=2, padding=3),
        lambda: conv.fbb(drawn(2, 100, 1, 1), packed(2000, 100, 1, 1, seed=1), 0.125),
    ]
    found = []
    threads = torch.get_num_threads()
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        found.append([call().words for call in calls])
    torch.set_num_threads(threads)
    for many in found[1:]:
        assert all(map(torch.equal, many, found[0]))


def test_compile_whole_graph():
    w = packed(40, 33, 3, 3, scale="mean")

    def layer(x):
        hidden = conv.bbb(BitImages.from_float(x), w, padding="same", threshold=torch.ones(40))
        return hidden.to_float()

    x = drawn(2, 33, 8, 9)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), layer(x))


@pytest.mark.parametrize("size", [(96, 96), (33, 200), (5, 5), (70, 3)])
def test_patches_of_large_images(size, device, assert_kernel_equals_reference):
    x = torch.randn(3, 3, *size)
    x[0, 0, 0, 0] = torch.nan
    for stride, padding in (([1, 1], [2] * 4), ([2, 3], [2, 4, 1, 3])):
        arguments = {"x": x, "kernel": [5, 5], "stride": stride, "padding": padding}
        arguments["dilation"] = [1, 1]
        assert_kernel_equals_reference("pack_patches", arguments, device)


def test_patches_by_hand(device):
    x = torch.tensor([[[[1.0, -1.0], [-1.0, 1.0]]]], device=device)
    found = patches.pack(x, 3, padding=1)
    assert found.channels == 64
    # The top left pixel sits in the middle of its patch: taps 4, 5, 7 and 8 are inside.
    assert found.words[0, 0, 0].tolist() == [(1 << 4) | (1 << 8), (1 << 5) | (1 << 7)]


@given(
    channels=st.integers(1, 4),
    outputs=st.sampled_from([1, 5, 32, 40]),
    kernel=st.sampled_from([(1, 1), (5, 5), (3, 4), (4, 8), (1, 32), (2, 3)]),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    dilation=st.integers(1, 2),
    options=st.integers(0, 15),
    seed=st.integers(0, 1000),
)
def test_patches_are_the_convolution(
    channels, outputs, kernel, stride, padding, dilation, options, seed, device, sampler
):
    draw = sampler(seed=seed)
    x = draw.floats(2, channels, *(dilation * (k - 1) + 5 for k in kernel)).to(device)
    w = draw.floats(outputs, channels, *kernel).to(device)
    w = BitImages.from_float(w, scale="mean" if options & 1 else None)
    vectors = [draw.floats(outputs).to(device) for _ in range(3)]
    comparison = {
        "bias": vectors[0] if options & 2 else None,
        "threshold": vectors[1] * 3 if options & 4 else None,
        "flip": vectors[2] > 0 if options & 8 else None,
    }
    numbers = {"stride": stride, "padding": padding, "dilation": dilation}
    images = BitImages.from_float(x)
    cut, words = patches.pack(x, kernel, **numbers), patches.kernel(w, **comparison)
    assert torch.equal(patches.bbf(cut, words), conv.bbf(images, w, integer=True, **numbers))
    bits = conv.bbb(images, w, **numbers, **comparison)
    assert torch.equal(patches.bbb(cut, words).words, bits.words)


def test_thresholds_and_empty_batches_of_patches(device):
    x = torch.rand(2, 3, 8, 8, device=device)
    threshold = torch.tensor([0.2, 0.5, 0.9], device=device)
    shifted = patches.pack(x - threshold.view(-1, 1, 1), 5, padding=2)
    assert torch.equal(patches.pack(x, 5, padding=2, threshold=threshold).words, shifted.words)
    assert patches.pack(x[:0], 5).words.shape == (0, 4, 4, 6)
