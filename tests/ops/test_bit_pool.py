"""Max pooling of bits: torch's pooling of +-1, clear errors."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from wrong_calls import check_wrong_calls

from bitgnn.bits import BitImages
from bitgnn.ops import conv


@given(
    images=st.integers(0, 3),
    channels=st.sampled_from([1, 31, 32, 33, 64, 512]),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    more=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    stride=st.none() | st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padded=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_is_torchs_pooling_of_signs(images, channels, kernel, more, stride, padded, seed, device):
    generator = torch.Generator().manual_seed(seed)
    size = kernel[0] + more[0], kernel[1] + more[1]
    x = torch.randn(images, channels, *size, generator=generator)
    flip = torch.rand(channels, generator=generator) < 0.5
    padding = (kernel[0] // 2, kernel[1] // 2) if padded else 0
    bits = BitImages.from_float(x)
    turned = torch.where(flip, -1.0, 1.0).view(-1, 1, 1)
    for mark, sign in ((None, torch.ones(1)), (flip, turned)):
        expected = functional.max_pool2d(sign * bits.to_float(), kernel, stride, padding) * sign
        mark = None if mark is None else mark.to(device)
        found = conv.max_pool(bits.to(device), kernel, stride, padding, flip=mark)
        assert torch.equal(found.to_float().cpu(), expected)
        if channels % 32:
            assert found.words[..., -1].bitwise_right_shift(channels % 32).eq(0).all()


X = BitImages.from_float(torch.ones(2, 40, 5, 6))
OP = torch.ops.bitgnn.pool_bits
WRONG = r"""
conv.max_pool(X.words, 2) -> TypeError: conv.max_pool: x must be BitImages
conv.max_pool(X, 0) -> ValueError: kernel_size must be at least 1, got 0
conv.max_pool(X, 2.0) -> TypeError: kernel_size must be an int or
conv.max_pool(X, 2, 0) -> ValueError: stride must be at least 1, got 0
conv.max_pool(X, 3, padding=2)
    -> ValueError: padding must be at most half of the kernel \(3, 3\), got 2
conv.max_pool(X, 6) -> ValueError: no larger than the padded image, \[5, 6\], got \[6, 6\]
conv.max_pool(X, 2, flip=torch.ones(39, dtype=torch.bool))
    -> ValueError: flip must have shape \[40\], got \[39\]
OP(X.words, [2, 2], [2, 2], [0] * 4, X.words[0, 0, 0, :1])
    -> RuntimeError: pool_bits: words of flip must be 2, got 1
OP(X.words, [2, 2], [2, 2], [0, 2, 0, 0])
    -> RuntimeError: padding must be less than the kernel, 2, .* got 2
OP(X.words, [6, 2], [2, 2], [0] * 4)
    -> RuntimeError: kernel must have a kernel no larger than the padded image: 5 along an axis,
        got 6
"""


def test_wrong_arguments_are_named():
    check_wrong_calls(WRONG, globals())
