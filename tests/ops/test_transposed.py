"""Transposed matrices of bits, and products of operands that are stored transposed."""

import pytest
import torch

from bitgnn import BitTensor
from bitgnn.ops import bmm

SIZES = (0, 1, 31, 32, 33, 64, 100, 257, 1030)


def draw(rows, size, device, scale=None):
    generator = torch.Generator().manual_seed(rows + 7 * size)
    return BitTensor.from_float(
        torch.randn(rows, size, generator=generator).to(device), scale=scale
    )


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("size", SIZES)
def test_transposed_bits(rows, size, device):
    bits = draw(rows, size, device)
    turned = bits.t()
    assert turned.shape == (size, rows)
    assert torch.equal(turned.to_float(), bits.to_float().t())
    turned.validate()  # padding bits are 0
    assert turned.t().equal(bits)


def test_rows_that_lie_apart(device):
    words = draw(40, 200, device).words
    apart = torch.stack([words, words], 1)[:, 0]
    assert not apart.is_contiguous()
    assert BitTensor(apart, 200).t().equal(BitTensor(words, 200).t())


@pytest.mark.parametrize("transpose_x", [False, True])
@pytest.mark.parametrize("transpose_w", [False, True])
@pytest.mark.parametrize(("n", "k", "m"), [(1, 1, 1), (33, 70, 31), (64, 0, 5), (130, 257, 96)])
def test_products(n, k, m, transpose_x, transpose_w, device):
    x, w = draw(n, k, device), draw(m, k, device)
    expected = (x.to_float() @ w.to_float().t()).int()
    given = {"transpose_x": transpose_x, "transpose_w": transpose_w}
    x, w = x.t() if transpose_x else x, w.t() if transpose_w else w
    assert torch.equal(bmm.bbf(x, w, integer=True, **given), expected)
    assert torch.equal(bmm.bbb(x, w, **given).to_float() > 0, expected >= 0)


def test_errors(device):
    scaled, w = draw(5, 40, device, "mean"), draw(40, 5, device)
    with pytest.raises(ValueError, match=r"BitTensor\.t: a matrix with a scale"):
        scaled.t()
    with pytest.raises(ValueError, match=r"bmm\.bbf: x must hold no scale where it is stored"):
        bmm.bbf(scaled, w, transpose_x=True)
    with pytest.raises(TypeError, match=r"bmm\.bbb: w must be a BitTensor"):
        bmm.bbb(draw(5, 40, device), w.to_float(), transpose_w=True)
    with pytest.raises(ValueError, match=r"bmm\.bbf: w must hold 5 features like x, got 6"):
        bmm.bbf(draw(40, 5, device), draw(6, 40, device), transpose_w=True)
