"""Standardised rows: the reference, the float path, ugly values and strides."""

import pytest
import torch

from bitgnn.nn import NodeStandardize
from bitgnn.ops import reference
from bitgnn.ops.pack import pack, pack_standardized
from bitgnn.quantize import sgn

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8]
# Each length a kernel treats in its own way, and their neighbours.
SIZES = [1, 2, 31, 32, 33, 64, 65, 128, 129, 250, 256, 300, 500, 512, 513, 602, 640, 700, 1024,
         1025, 1433, 1536, 1537, 3703, 4096, 4097, 9000]  # fmt: skip


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_standardised_rows_are_sign_and_scale_of_the_float_path(size, relu, device):
    torch.manual_seed(size)
    # Random rows, then constants, values on a grid, zeros, NaN and infinities.
    x = torch.randn(12, size) * torch.logspace(-3, 3, 12).unsqueeze(1) + 1
    x[1], x[2], x[5] = 0.1, -7.3, 0
    x[3] = (x[3] * 2).round() / 2
    x[4] = (torch.rand(size) < 0.01).float()
    x[6:9, size // 2] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    x = x.to(device)
    standardized = NodeStandardize()(x.relu() if relu else x)
    found = pack_standardized(x, relu=relu, scale="mean").validate()
    expected = pack(standardized, scale="mean")
    assert torch.equal(found.words, expected.words)
    torch.testing.assert_close(found.scale, expected.scale, rtol=1e-5, atol=1e-6, equal_nan=True)
    bits = pack_standardized(x, relu=relu)
    assert bits.scale is None
    assert torch.equal(bits.words, found.words)
    assert torch.equal(bits.to_float(), sgn(standardized))


@pytest.mark.parametrize("size", [40, 300, 1433, 5000])
def test_squares_beyond_float32(size, device):
    x = torch.randn(20, size, generator=torch.Generator().manual_seed(0))
    x[:10] *= 1e25
    words, scale = torch.ops.bitgnn.pack_standardized(x.to(device), False, True)
    expected_words, expected_scale = reference.pack.pack_standardized(x, False, True)
    assert torch.equal(words.cpu(), expected_words)
    torch.testing.assert_close(scale.cpu(), expected_scale, rtol=1e-5, atol=0)
    assert scale.min() > 0.7


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 1000])
def test_standardised_rows(rows, device, sampler, assert_kernel_equals_reference):
    for size in (20, 100, 200, 400, 602, 1000, 1433):
        arguments = {"x": sampler(seed=rows).matrix(rows, size), "scaled": True}
        assert_kernel_equals_reference("pack_standardized", arguments, device)
