"""What conv.prepare makes of kernels and comparisons decides as the operators' floats do."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from wrong_calls import check_wrong_calls

from bitgnn.bits import BitImages
from bitgnn.ops import conv
from bitgnn.ops.reference.conv import scaled_dots

SPECIAL = [0.0, -0.0, 1e-40, 3.4e38, -3.4e38, float("nan")]


def vector(count, seed, special):
    generator = torch.Generator().manual_seed(seed)
    x = (torch.randn(count, generator=generator) * 8).round() / 4
    for value in special:
        if count > 1:
            x[int(torch.randint(count, (), generator=generator))] = value
    return x


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
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    given=st.tuples(*[st.booleans()] * 4),
    added=st.sampled_from([0, 5, 32768]),
    special=st.booleans(),
    seed=st.integers(0, 10**5),
)
def test_limits_are_the_comparison(outputs, channels, kernel, given, added, special, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(outputs, channels, *kernel, generator=generator)
    extra = SPECIAL if special else []
    scale, bias, threshold = (
        vector(outputs, seed + i, extra) if given[i] else None for i in range(3)
    )
    flip = torch.rand(outputs, generator=generator) < 0.5 if given[3] else None
    w = BitImages(BitImages.from_float(values).words, channels, scale)
    taps = (values >= 0).sum(1).flatten(1)
    options = {"bias": bias, "threshold": threshold, "flip": flip}
    compared = bias is not None or threshold is not None
    bound = taps.size(1) * channels
    for step, factor in ((None, 1), (2.0**-7, 32768)):
        prepared = conv.prepare(w, step=step, added=added, **options)
        assert prepared.dtype == torch.int32
        assert torch.equal(prepared[:, :-2].long(), taps)
        assert_decides(
            prepared, factor * bound + added, scale if compared else None, bias, threshold, flip,
            step or 1.0,
        )  # fmt: skip


def test_never_true_is_beyond_the_greatest_total():
    w = BitImages.from_float(torch.ones(2, 5, 1, 1))
    w = BitImages(w.words, 5, torch.tensor([1.0, -1.0]))
    prepared = conv.prepare(w, threshold=torch.tensor([float("nan")] * 2))
    assert prepared.tolist() == [[5, 6, 0], [5, 6, 0]]


@pytest.mark.parametrize("outputs", [1, 33, 64, 160])
@pytest.mark.parametrize("special", [[], SPECIAL[:5]])
def test_operators_take_it(outputs, special, device):
    x = torch.randn(2, 40, 6, 6).to(device)
    w = BitImages.from_float(torch.randn(outputs, 40, 3, 3).to(device), scale="mean")
    threshold = (8 * vector(outputs, 3, special)).to(device)
    images = BitImages.from_float(x)
    given = {"threshold": threshold, "prepared": conv.prepare(w, threshold=threshold)}
    expected = conv.bbb(images, w, padding=1, threshold=threshold)
    assert torch.equal(conv.bbb(images, w, padding=1, **given).words, expected.words)
    assert torch.equal(conv.bbf(images, w, prepared=given["prepared"]), conv.bbf(images, w))
    given["prepared"] = conv.prepare(w, scale=False, threshold=threshold)
    expected = conv.add(images, w, padding=1, threshold=threshold)[1]
    assert torch.equal(conv.add(images, w, padding=1, **given)[1].words, expected.words)


def test_first_layers_take_it():
    x = torch.randn(2, 40, 6, 6)
    w, threshold = BitImages.from_float(torch.randn(33, 40, 3, 3), scale="mean"), torch.randn(33)
    prepared = conv.prepare(w, threshold=threshold, step=0.25)
    expected = conv.fbb(x, w, 0.25, padding=1, threshold=threshold)
    found = conv.fbb(x, w, 0.25, padding=1, threshold=threshold, prepared=prepared)
    assert torch.equal(found.words, expected.words)


W = BitImages.from_float(torch.ones(8, 40, 3, 3), scale="mean")
INFINITE = torch.full((8,), float("inf"))
WRONG = r"""
conv.prepare(INFINITE) -> TypeError: conv.prepare: w must be BitImages
conv.prepare(W, bias=torch.ones(7)) -> ValueError: bias .*\[8\], got \[7\]
conv.prepare(W, bias=INFINITE) -> ValueError: bias must not be inf
conv.prepare(BitImages(W.words, 40, INFINITE), threshold=torch.ones(8))
    -> ValueError: conv.prepare: scale of w must not be infinite
conv.prepare(W, added=-1) -> ValueError: added must be at least 0 .* got -1
conv.prepare(W, step=0.3) -> ValueError: step must be a power of two
conv.prepare(BitImages.from_float(torch.ones(1, 65536, 1, 1)), step=1.0)
    -> ValueError: at most 65535 weights an output, got 65536
"""


def test_wrong_arguments_are_named():
    check_wrong_calls(WRONG, globals())
