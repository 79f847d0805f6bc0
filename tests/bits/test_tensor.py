"""BitTensor: packing, values, checks, and patterns of its set bits."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from wrong_calls import check_wrong_calls

from bitgnn import BitTensor
from bitgnn.bits import set_bits
from bitgnn.ops import bmm

SIZES = [0, 1, 31, 32, 33, 64, 65, 128, 200]


@pytest.mark.parametrize("size", SIZES)
def test_bits_are_little_endian(size, device):
    x = torch.randn(7, size)
    bits = BitTensor.from_float(x.to(device))
    packed = np.packbits((x >= 0).numpy(), axis=1, bitorder="little")
    words = bits.words.cpu().numpy().view(np.uint8).reshape(7, -1)
    assert np.array_equal(words[:, : packed.shape[1]], packed)
    assert not words[:, packed.shape[1] :].any()
    assert bits.words.shape == (7, -(-size // 32))
    assert bits.shape == (7, size)
    assert bits.nbytes == 4 * 7 * -(-size // 32)
    assert torch.equal(bits.to_float().cpu(), torch.where(x >= 0, 1.0, -1.0))


@given(n=st.integers(0, 20), size=st.integers(0, 150), seed=st.integers(0, 1000))
def test_round_trip(n, size, seed):
    x = torch.randn(n, size, generator=torch.Generator().manual_seed(seed))
    bits = BitTensor.from_float(x, scale="mean").validate()
    again = BitTensor.from_float(bits.to_float())
    # A row of size 0 has scale 0 and no features.
    assert torch.equal(again.words, bits.words)
    torch.testing.assert_close(bits.to_float().abs().sum(1), x.abs().sum(1))


def test_sign_of_zero_and_nan(device):
    x = torch.tensor([[0.0, -0.0, float("nan"), float("inf"), -float("inf"), -1e-30]])
    bits = BitTensor.from_float(x.to(device)).to_float()
    assert bits.tolist() == [[1, 1, -1, 1, -1, -1]]


def test_threshold_and_scale(device):
    x = torch.randn(5, 40, device=device)
    threshold = torch.randn(40, device=device)
    bits = BitTensor.from_float(x, threshold, scale="mean")
    torch.testing.assert_close(bits.scale, (x - threshold).abs().mean(1))
    assert torch.equal(bits.to_float() > 0, x >= threshold)


def test_export_takes_and_returns_bits():
    class Flip(torch.nn.Module):
        def forward(self, bits: BitTensor) -> BitTensor:
            return BitTensor.from_float(-bits.to_float())

    bits = BitTensor.from_float(torch.randn(4, 33))
    program = torch.export.export(Flip(), (bits,))
    assert program.module()(bits).equal(BitTensor.from_float(-bits.to_float()))


@pytest.mark.parametrize("rows", [0, 1, 3, 70])
@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 130])
def test_patterns_of_set_bits(rows, size, device, monkeypatch):
    monkeypatch.setattr("bitgnn.bits.functions._ROWS_AT_ONCE", 32)
    x, w = torch.randn(rows, size, device=device), torch.randn(7, size, device=device)
    bits, columns = BitTensor.from_float(x), BitTensor.from_float(w.T)
    pattern = set_bits(bits)
    assert pattern.shape == (rows, size)
    assert torch.equal(pattern.to_dense(), (x >= 0).float())
    sums = torch.ops.bitgnn.bspmm_bbf(columns.words, 7, pattern.rowptr, pattern.indices)
    expected = bmm.bbf(bits, BitTensor.from_float(w))
    assert torch.equal(2 * sums - columns.to_float().sum(0), expected)


@pytest.mark.parametrize("word", [1 << 8, -(2**31)])
def test_validate_finds_padding_bits(word):
    words = torch.zeros(3, 2, dtype=torch.int32)
    words[1, 1] = word
    with pytest.raises(ValueError, match="padding bits must be 0, got 1 rows"):
        BitTensor(words, 40).validate()
    assert BitTensor(words, 64).validate().size == 64


WORDS, X = torch.zeros(3, 2, dtype=torch.int32), torch.ones(2, 3)
NAN, INF, of = torch.tensor([[float("nan")]]), torch.tensor([[float("inf")]]), BitTensor.from_float
WRONG = r"""
BitTensor(WORDS.long(), 40)
    -> TypeError: BitTensor: words must be an int32 tensor, got torch.int64 Tensor
BitTensor([1], 40) -> TypeError: words must be an int32 tensor, got list
BitTensor(WORDS, 40.0) -> TypeError: size must be an int, got float
BitTensor(WORDS, True) -> TypeError: size must be an int, got bool
BitTensor(WORDS, 65)
    -> ValueError: BitTensor: words must have shape \[N, 3\] for size 65, got \[3, 2\]
BitTensor(WORDS, 32) -> ValueError: shape \[N, 1\]
BitTensor(WORDS, -1) -> ValueError: size -1
BitTensor(WORDS[0], 40) -> ValueError: got \[2\]
BitTensor(WORDS, 40, torch.ones(3).double())
    -> TypeError: BitTensor: scale must be a float32 tensor
BitTensor(WORDS, 40, torch.ones(2)) -> ValueError: scale must have shape \[3\], got \[2\]
BitTensor(WORDS, 40, torch.ones(3, device="meta")) -> ValueError: scale must be on cpu, got meta
of(X.int()) -> TypeError: BitTensor.from_float: x must be .* got torch.int32
of(X[0]) -> ValueError: BitTensor.from_float: x must have shape \[N, K\], got \[3\]
of(X, scale="max") -> ValueError: got 'max'
of(X, torch.ones(2)) -> ValueError: threshold must have shape \[3\] like x's features, got \[2\]
of(X, torch.ones(3).int()) -> TypeError: threshold must be a float32 tensor, got torch.int32
of(X, torch.ones(3, device="meta")) -> ValueError: threshold must be on cpu, got meta
of(NAN, check_finite=True) -> ValueError: x must be finite
of(INF, check_finite=True) -> ValueError: x must be finite
"""


def test_wrong_calls():
    check_wrong_calls(WRONG, globals())
