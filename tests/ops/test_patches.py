"""Patches of few-channel images as words: the reference, and convolution with a word a tap."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from wrong_calls import check_wrong_calls

from bitgnn.bits import BitImages
from bitgnn.ops import conv, patches


@pytest.mark.parametrize("size", [(96, 96), (33, 200), (5, 5), (70, 3)])
def test_large_images_on_several_threads(size, device, assert_kernel_equals_reference):
    x = torch.randn(3, 3, *size)
    x[0, 0, 0, 0] = torch.nan
    for stride, padding in (([1, 1], [2] * 4), ([2, 3], [2, 4, 1, 3])):
        arguments = {"x": x, "kernel": [5, 5], "stride": stride, "padding": padding}
        arguments["dilation"] = [1, 1]
        assert_kernel_equals_reference("pack_patches", arguments, device)


def test_words_by_hand(device):
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
def test_is_the_convolution(
    channels, outputs, kernel, stride, padding, dilation, options, seed, device
):
    generator = torch.Generator().manual_seed(seed)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    size = [dilation * (k - 1) + 1 + 4 for k in kernel]
    x = randn(2, channels, *size)
    scale = "mean" if options & 1 else None
    w = BitImages.from_float(randn(outputs, channels, *kernel), scale=scale)
    comparison = {
        "bias": randn(outputs) if options & 2 else None,
        "threshold": randn(outputs) * 3 if options & 4 else None,
        "flip": randn(outputs) > 0 if options & 8 else None,
    }
    numbers = {"stride": stride, "padding": padding, "dilation": dilation}
    images = BitImages.from_float(x)
    packed, words = patches.pack(x, kernel, **numbers), patches.kernel(w, **comparison)
    expected = conv.bbf(images, w, integer=True, **numbers)
    assert torch.equal(patches.bbf(packed, words), expected)
    bits = conv.bbb(images, w, **numbers, **comparison)
    assert torch.equal(patches.bbb(packed, words).words, bits.words)


def test_thresholds_and_empty_batches(device):
    x = torch.rand(2, 3, 8, 8, device=device)
    threshold = torch.tensor([0.2, 0.5, 0.9], device=device)
    shifted = patches.pack(x - threshold.view(-1, 1, 1), 5, padding=2)
    assert torch.equal(patches.pack(x, 5, padding=2, threshold=threshold).words, shifted.words)
    assert patches.pack(x[:0], 5).words.shape == (0, 4, 4, 6)


W = BitImages.from_float(torch.ones(4, 3, 5, 5))
X = torch.ones(1, 3, 9, 9)
OP = torch.ops.bitgnn.pack_patches
WRONG = r"""
patches.pack(X.half(), 5) -> TypeError: x must be a float32 tensor
patches.pack(X[0], 5) -> ValueError: x must have shape .*, got \[3, 9, 9\]
patches.pack(X, 6) -> ValueError: at most 32 pixels, got \[6, 6\]
patches.pack(X[:, :, :4], 5) -> ValueError: no larger than the padded image
patches.pack(X, 5, threshold=torch.ones(2))
    -> ValueError: threshold must have shape \[3\], got \[2\]
patches.kernel(BitImages.from_float(torch.ones(1, 1, 7, 7)))
    -> ValueError: patches.kernel: a kernel must have at most 32 pixels, got \[7, 7\]
patches.bbb(patches.pack(X, 5), W) -> TypeError: w must be a PatchKernel, got
patches.bbb(patches.pack(X[:, :2], 5), patches.kernel(W)) -> ValueError: w must hold 128 channels
OP(X.double(), [5, 5], [1, 1], [0] * 4, [1, 1]) -> RuntimeError: pack_patches: x must be
OP(X, [6, 6], [1, 1], [0] * 4, [1, 1])
    -> RuntimeError: kernel must have at most 32 pixels, got 6 x 6
OP(X, [5, 5], [1, 0], [0] * 4, [1, 1]) -> RuntimeError: stride must be at least 1, got 0
"""


def test_errors_name_what_is_wrong():
    check_wrong_calls(WRONG, globals())
