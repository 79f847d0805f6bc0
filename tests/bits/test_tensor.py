"""BitTensor: packing, values, checks, moves and serialisation."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch.utils import _pytree as pytree

from bitgnn import BitTensor

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
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="x must be finite"):
            BitTensor.from_float(torch.tensor([[value]], device=device), check_finite=True)


def test_threshold_and_scale(device):
    x = torch.randn(5, 40, device=device)
    threshold = torch.randn(40, device=device)
    bits = BitTensor.from_float(x, threshold, scale="mean")
    torch.testing.assert_close(bits.scale, (x - threshold).abs().mean(1))
    assert torch.equal(bits.to_float() > 0, x >= threshold)


def test_equal():
    x = torch.randn(4, 33)
    plain, scaled = BitTensor.from_float(x), BitTensor.from_float(x, scale="mean")
    assert plain.equal(BitTensor.from_float(x))
    assert scaled.equal(BitTensor.from_float(x, scale="mean"))
    assert not plain.equal(scaled)
    assert not scaled.equal(BitTensor.from_float(2 * x, scale="mean"))
    assert not plain.equal(BitTensor.from_float(-x))
    assert not plain.equal(BitTensor.from_float(x[:, :32]))
    assert not BitTensor(plain.words, 33).equal(BitTensor(plain.words, 34))


def test_moves(device):
    bits = BitTensor.from_float(torch.randn(4, 33), scale="mean")
    moved = bits.to(device)
    assert moved.device.type == device.type
    assert moved.to("cpu").equal(bits)
    assert bits.to("meta").scale.device.type == "meta"


@pytest.mark.parametrize("scale", [None, "mean"])
def test_safetensors_round_trip(scale):
    bits = BitTensor.from_float(torch.randn(4, 33), scale=scale)
    held = load(save(bits.to_tensors("layer.weight.")))
    assert BitTensor.from_tensors(held, "layer.weight.").equal(bits)
    with pytest.raises(ValueError, match=r"must hold \['other.words', 'other.size'\]"):
        BitTensor.from_tensors(held, "other.")


def test_pytree():
    bits = BitTensor.from_float(torch.randn(4, 33), scale="mean")
    leaves, spec = pytree.tree_flatten({"x": bits})
    assert len(leaves) == 2
    assert pytree.tree_unflatten(leaves, spec)["x"].equal(bits)
    moved = pytree.tree_map(lambda t: t.to("meta"), bits)
    assert moved.device.type == "meta"
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


def test_export_takes_and_returns_bits():
    class Flip(torch.nn.Module):
        def forward(self, bits: BitTensor) -> BitTensor:
            return BitTensor.from_float(-bits.to_float())

    bits = BitTensor.from_float(torch.randn(4, 33))
    program = torch.export.export(Flip(), (bits,))
    assert program.module()(bits).equal(BitTensor.from_float(-bits.to_float()))


WORDS = torch.zeros(3, 2, dtype=torch.int32)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((WORDS.long(), 40), TypeError, "words must be an int32 tensor, got torch.int64 Tensor"),
        (([1], 40), TypeError, "words must be an int32 tensor, got list"),
        ((WORDS, 40.0), TypeError, "size must be an int, got float"),
        ((WORDS, True), TypeError, "size must be an int, got bool"),
        ((WORDS, 65), ValueError, r"words must have shape \[N, 3\] for size 65, got \[3, 2\]"),
        ((WORDS, 32), ValueError, r"shape \[N, 1\]"),
        ((WORDS, -1), ValueError, "size -1"),
        ((WORDS[0], 40), ValueError, r"got \[2\]"),
        ((WORDS, 40, torch.ones(3).double()), TypeError, "scale must be a float32 tensor"),
        ((WORDS, 40, torch.ones(2)), ValueError, r"scale must have shape \[3\], got \[2\]"),
        ((WORDS, 40, torch.ones(3, device="meta")), ValueError, "scale must be on cpu, got meta"),
    ],
)
def test_constructor_errors(arguments, error, message):
    with pytest.raises(error, match=f"BitTensor: .*{message}"):
        BitTensor(*arguments)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: BitTensor.from_float(torch.ones(2, 3).int()), TypeError, "got torch.int32"),
        (lambda: BitTensor.from_float(torch.ones(3)), ValueError, r"\[N, K\], got \[3\]"),
        (lambda: BitTensor.from_float(torch.ones(2, 3), scale="max"), ValueError, "got 'max'"),
        (lambda: BitTensor.from_float(torch.ones(2, 3), torch.ones(2)), ValueError, r"\[3\]"),
        (lambda: BitTensor.from_float(torch.ones(2, 3), torch.ones(3).int()), TypeError, "int32"),
        (
            lambda: BitTensor.from_float(torch.ones(2, 3), torch.ones(3, device="meta")),
            ValueError,
            "threshold must be on cpu, got meta",
        ),
    ],
)
def test_from_float_errors(call, error, message):
    with pytest.raises(error, match=f"BitTensor.from_float: .*{message}"):
        call()


@pytest.mark.parametrize("word", [1 << 8, -(2**31)])
def test_validate_finds_padding_bits(word):
    words = torch.zeros(3, 2, dtype=torch.int32)
    words[1, 1] = word
    with pytest.raises(ValueError, match="padding bits must be 0, got 1 rows"):
        BitTensor(words, 40).validate()
    assert BitTensor(words, 64).validate().size == 64


def test_repr():
    x = torch.tensor([[1.0, -1, 1, -1, 1, 1, 1, 1]] * 5)
    bits = BitTensor.from_float(2 * x, scale="mean")
    head = "BitTensor(5 x 8, 40 bytes, scaled, device=cpu)"
    assert repr(bits) == head + "\n[2, -2, 2, -2, 2, 2, ...]" * 3 + "\n..."
    assert repr(bits[0]) == "BitTensor(8, 8 bytes, scaled, device=cpu)\n[2, -2, 2, -2, 2, 2, ...]"
    assert repr(bits.to("meta")) == head.replace("cpu", "meta")
    assert repr(bits[:0]) == "BitTensor(0 x 8, 0 bytes, scaled, device=cpu)"
