"""First layers in fixed point: torch's convolution, rounding, clear errors."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from wrong_calls import check_wrong_calls

from bitgnn.bits import BitImages
from bitgnn.ops import conv


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def sgn(x: Tensor) -> Tensor:
    return torch.where(x >= 0, 1.0, -1.0).double()


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
def test_is_torchs_convolution(shape, outputs, kernel, stride, padding, layout, device):
    pair = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    w = drawn(outputs, shape[1], *pair, seed=1)
    weight = BitImages.from_float(w, scale="mean")
    numbers = {"stride": stride, "padding": padding}
    pixels = torch.randint(
        256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(2)
    )
    for x, step in ((drawn(*shape), 2.0**-8), (pixels, 1.0), (drawn(*shape).half(), 0.25)):
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


def test_rounding_and_special_values(device):
    values = [0.5, 1.5, 2.5, -0.5, -1.5, 0.499, 40000.0, -40000.0, float("nan"), float("inf")]
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


def test_one_and_many_threads_agree():
    x, w = drawn(3, 3, 40, 41), BitImages.from_float(drawn(70, 3, 7, 7, seed=1))
    rows, wide = drawn(2, 100, 1, 1), BitImages.from_float(drawn(2000, 100, 1, 1, seed=1))
    found = []
    threads = torch.get_num_threads()
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        found.append(
            (conv.fbb(x, w, 0.125, stride=2, padding=3).words, conv.fbb(rows, wide, 0.125).words)
        )
    torch.set_num_threads(threads)
    for many in found[1:]:
        assert all(map(torch.equal, many, found[0]))


X = torch.ones(2, 3, 9, 9)
W = BitImages.from_float(torch.ones(8, 3, 3, 3))
WORDS = [1, 1], [0] * 4, [1, 1]
OP = torch.ops.bitgnn.conv_fbf
WRONG = r"""
conv.fbb(BitImages.from_float(X), W, 1.0)
    -> TypeError: conv.fbb: x must be dense float32, .* got BitImages
conv.fbf(X.double(), W, 1.0) -> TypeError: or uint8, got torch.float64
conv.fbf(X[:, :2], W, 1.0) -> ValueError: x must have shape \[N, 3, H, W\], got \[2, 2, 9, 9\]
conv.fbf(X, X, 1.0) -> TypeError: conv.fbf: w must be BitImages
conv.fbf(X, W, 0.3) -> ValueError: step must be a power of two .* got 0.3
conv.fbf(X, W, 0.0) -> ValueError: step must be a power of two .* got 0.0
conv.fbf(X, W, -2.0) -> ValueError: step must be a power of two .* got -2
conv.fbf(X, W, "1") -> TypeError: step must be a float, got str
conv.fbf(X.byte(), W, 0.5) -> ValueError: step must be 1 for uint8 .* 0.5
conv.fbf(torch.ones(1, 65536, 1, 1), BitImages.from_float(torch.ones(1, 65536, 1, 1)), 1.0)
    -> ValueError: w must have at most 65535 weights an output, got 65536
conv.fbb(X[..., :2], W, 1.0)
    -> ValueError: conv.fbb: the kernel must be no larger than the padded image
conv.fbb(X, W, 1.0, threshold=X) -> ValueError: threshold must have
conv.fbf(X, W, 1.0, bias=torch.ones(8), integer=True)
    -> ValueError: bias must be None with integer=True
conv.fbf(X, W.to("meta"), 1.0) -> ValueError: w must be on cpu
OP(X.double(), W.words, 1.0, *WORDS)
    -> RuntimeError: conv_fbf: x must be float32, float16, bfloat16 or uint8, got Double
OP(X, W.words, 0.3, *WORDS) -> RuntimeError: step must be a power of two
OP(torch.ones(1, 40, 3, 3), W.words, 1.0, *WORDS)
    -> RuntimeError: w must hold 2 words a pixel for 40 channels, got 1
"""


def test_wrong_arguments_are_named():
    check_wrong_calls(WRONG, globals())
