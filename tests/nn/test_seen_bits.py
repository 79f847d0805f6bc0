"""Which bits of a layer are constant, as far as its last forwards showed."""

import warnings

import pytest
import torch
from torch_geometric.nn import Sequential

import bitgnn
from bitgnn.nn import GCNConv
from bitgnn.nn.seen_bits import EVERY, MOST, ConstantBits, SeenBits

N, K = 41, 37
EDGES = torch.randint(0, N, (2, 120), generator=torch.Generator().manual_seed(1))


def _words(bits):
    return torch.ops.bitgnn.pack(torch.where(bits, 1.0, -1.0))


@pytest.fixture
def bits():
    found = torch.rand(N, K, generator=torch.Generator().manual_seed(0)) < 0.5
    found[:, 3], found[:, 36] = True, False
    return found


def look(seen, bits, training=False):
    """A forward with these bits, looked at if it is due."""
    x = bits.float()
    assert seen.is_due(training, x)
    seen.add(_words(bits), K, training, x)


def constant_of(bits):
    return int((bits.all(0) | ~bits.any(0)).sum())


@pytest.mark.parametrize("rows", [8, 9, 16, 31, N])
def test_bits_of_one_value_are_counted(bits, rows, device):
    seen = SeenBits()
    look(seen, bits[:rows].to(device))
    assert seen.constant == ConstantBits(constant_of(bits[:rows]), K, rows, False)


def test_batches_of_an_evaluation_add_up_and_training_begins_anew(bits):
    seen = SeenBits()
    for row in range(8):
        assert seen.constant is None
        look(seen, bits[row : row + 1])
    assert seen.constant == ConstantBits(constant_of(bits[:8]), K, 8, False)
    look(seen, torch.ones_like(bits), training=True)
    assert seen.constant == ConstantBits(K, K, N, True)
    look(seen, bits)
    assert seen.constant == ConstantBits(2, K, N, False)


def test_few_forwards_are_looked_at():
    seen, x = SeenBits(), torch.ones(N, K)
    due = [seen.is_due(True, x) for _ in range(3 * EVERY)]
    assert [step for step, is_due in enumerate(due) if is_due] == [0, EVERY, 2 * EVERY]
    looked = 0
    for _ in range(2 * MOST):
        batch = x.clone()
        if seen.is_due(False, batch):
            seen.add(_words(batch > 0), K, False, batch)
            looked += 1
    assert looked == MOST
    seen = SeenBits()
    seen.add(_words(x > 0), K, False, x)
    assert not seen.is_due(False, x)  # the very tensor
    x[0] = -1
    assert seen.is_due(False, x)  # which was written to


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


@pytest.mark.parametrize("training", [True, False])
def test_freeze_refuses_signs_that_are_all_one(training):
    model = two_layers("FBF+FBF").train(training)
    model(CENTRED.abs(), EDGES)
    last = "batch of training looked at" if training else "evaluation"
    with pytest.raises(
        ValueError,
        match=rf"\(GCNConv\) must have input bits that vary, got all {K} of them the "
        rf"same in all {N} rows of the last {last}; centre what it reads, .* check=False",
    ):
        bitgnn.freeze(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bitgnn.freeze(model, check=False)
        model.eval()(CENTRED, EDGES)
        bitgnn.freeze(model)
