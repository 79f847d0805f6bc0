"""Patterns of set bits: positions, and products through them."""

import pytest
import torch

from bitgnn.bits import BitTensor, set_bits
from bitgnn.ops import bmm


@pytest.mark.parametrize("rows", [0, 1, 3, 70])
@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 130])
def test_positions_are_those_of_the_set_bits(
    device: torch.device, rows: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bitgnn.bits.functions._ROWS_AT_ONCE", 32)
    x = torch.randn(rows, size, device=device)
    pattern = set_bits(BitTensor.from_float(x))
    assert pattern.shape == (rows, size)
    assert torch.equal(pattern.to_dense(), (x >= 0).float())


def test_the_product_over_set_bits_is_the_dense_one(device: torch.device) -> None:
    x = (torch.rand(50, 300, device=device) < 0.03).float() - 0.5
    w = torch.randn(70, 300, device=device)
    pattern = set_bits(BitTensor.from_float(x))
    columns = BitTensor.from_float(w.T)
    total = columns.to_float().sum(0)
    sums = torch.ops.bitgnn.bspmm_bbf(columns.words, 70, pattern.rowptr, pattern.indices)
    expected = bmm.bbf(BitTensor.from_float(x), BitTensor.from_float(w))
    assert torch.equal(2 * sums - total, expected)
