"""Which bits of a layer are constant, as far as its last forwards showed."""

import warnings

import pytest
import torch
from torch_geometric.nn import Sequential

import bitgnn
from bitgnn.nn import GCNConv
from bitgnn.nn.inputs.seen_bits import EVERY, ConstantBits, SeenBits

N, K = 41, 37
EDGES = torch.randint(0, N, (2, 120), generator=torch.Generator().manual_seed(1))


def _words(bits):
    return torch.ops.bitgnn.pack(torch.where(bits, 1.0, -1.0))


@pytest.fixture
def bits():
    found = torch.rand(N, K, generator=torch.Generator().manual_seed(0)) < 0.5
    found[:, 3], found[:, 36] = True, False
    return found


def look(seen, bits):
    """A forward with these bits, looked at if it is due."""
    if seen.is_due(bits.float()):
        seen.add(_words(bits), K)


def constant_of(bits):
    return int((bits.all(0) | ~bits.any(0)).sum())


@pytest.mark.parametrize("rows", [8, 9, 16, 31, N])
def test_bits_of_one_value_are_counted(bits, rows, device):
    seen = SeenBits()
    look(seen, bits[:rows].to(device))
    assert seen.constant == ConstantBits(constant_of(bits[:rows]), K, rows)


def test_one_of_sixteen_batches_replaces_what_was_known(bits):
    seen = SeenBits()
    look(seen, bits[:7])
    assert seen.constant is None
    for _ in range(EVERY - 1):
        look(seen, torch.ones_like(bits))
    assert seen.constant is None
    look(seen, torch.ones_like(bits))
    assert seen.constant == ConstantBits(K, K, N)
    for _ in range(EVERY):
        look(seen, bits)
    assert seen.constant == ConstantBits(2, K, N)


def two_layers(precision):
    layers = [(GCNConv(K, 32, precision=precision), "x, e -> x")]
    layers.append((GCNConv(32, 3, precision=precision), "x, e -> x"))
    return Sequential("x, e", layers)


CENTRED = torch.randn(N, K, generator=torch.Generator().manual_seed(2))


def test_freeze_refuses_layers_that_never_looked():
    model = two_layers("bin")
    with pytest.raises(
        ValueError,
        match=r"\(GCNConv\) must have looked at its input, got a model that was never "
        r"trained; train it, or pass example to binarize\(\); freeze\(model, check=False\) packs",
    ):
        bitgnn.freeze(model)
    bitgnn.freeze(model, check=False)
    model(CENTRED, EDGES).sum().backward()
    frozen = bitgnn.freeze(model.eval())
    torch.testing.assert_close(frozen(CENTRED, EDGES), model(CENTRED, EDGES))


def test_freeze_refuses_signs_that_are_all_one():
    model = two_layers("FBF+FBF")
    model(CENTRED.abs(), EDGES)
    with pytest.raises(
        ValueError,
        match=rf"\(GCNConv\) must have input bits that vary, got all {K} of them the "
        rf"same in all {N} rows of the last batch of training looked at; centre .* check=False",
    ):
        bitgnn.freeze(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bitgnn.freeze(model, check=False)


def test_an_evaluation_never_stops_freeze():
    model = two_layers("FBF+FBF")
    model(CENTRED, EDGES)
    model.eval()(CENTRED.abs(), EDGES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bitgnn.freeze(model)
