"""BMM of rows most of whose words are zero, as packed bags of words have them."""

import pytest
import torch

from bitgnn import BitTensor
from bitgnn.ops import bmm, reference


def rows_with_words(
    rows: int, size: int, share: float, seed: int, density: float = 0.3
) -> torch.Tensor:
    """Signs with +1 in about ``share`` of the words alone, among them empty and full rows.

    In those words every third bit is set on average, or a part of ``density``.
    """
    generator = torch.Generator().manual_seed(seed)
    words = -(-size // 32)
    kept = torch.rand(rows, words, generator=generator) < share
    kept[::7], kept[3::11] = False, True
    signs = torch.where(torch.rand(rows, size, generator=generator) < density, 1.0, -1.0)
    return torch.where(kept.repeat_interleave(32, 1)[:, :size], signs, -1.0)


@pytest.mark.parametrize("size", [512, 513, 1024, 1433, 3703])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.5, 0.7])
@pytest.mark.parametrize("rows", [1, 33, 130])
@pytest.mark.parametrize("density", [0.03, 0.3])
def test_products_of_sparse_rows(size, share, rows, density):
    x = rows_with_words(rows, size, share, seed=size, density=density)
    generator = torch.Generator().manual_seed(1)
    for outputs in (1, 32, 70, 140):
        weight = torch.randn(outputs, size, generator=generator)
        w = BitTensor.from_float(weight)
        expected = x @ torch.where(weight >= 0, 1.0, -1.0).t()
        packed = BitTensor.from_float(x)
        assert torch.equal(bmm.bbf(packed, w, scale=False), expected)
        threshold = torch.randn(outputs, generator=generator) * size**0.5
        bits = reference.bmm.bmm_bbb(packed.words, w.words, size, threshold=threshold)
        assert torch.equal(bmm.bbb(packed, w, threshold=threshold).words, bits)
        # Packed inside the product, the last rows in a block of their own.
        assert torch.equal(bmm.fbb(x, w, threshold=threshold).words, bits)


@pytest.mark.parametrize("rows", [511, 512, 545, 1100])
def test_packing_in_blocks(rows):
    # Floats are packed some hundred rows at a time inside the product, with scales of their own.
    size = 530
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, size, generator=generator)
    w = BitTensor.from_float(torch.randn(40, size, generator=generator), scale="mean")
    found = bmm.fbf(x, w)
    expected = reference.bmm.bmm_fbf(x, w.words, w.scale, scale=True)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_rows_beyond_the_caches(share):
    # More than any core's share of the caches: fetched while others are multiplied.
    rows, size = 13_003, 530
    x = rows_with_words(rows, size, share, seed=2, density=0.1)
    generator = torch.Generator().manual_seed(3)
    w = BitTensor.from_float(torch.randn(70, size, generator=generator))
    expected = bmm.bbb(BitTensor.from_float(x), w).words
    assert torch.equal(bmm.fbb(x, w).words, expected)
    columns = torch.cat([x, x[:, :7]], 1)[:, :size]  # rows with something in between
    assert torch.equal(bmm.fbb(columns, w).words, expected)
