"""Bits of an input under dropout, and what a saved layer keeps of them."""

import pytest
import torch
from looked_up_inputs import K, N, looked, values_of, words_of
from torch.nn import functional

from bitgnn.nn import GCNConv, InputBits
from bitgnn.quantize.looked_up_linear import looked_up_linear


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def test_dropped_features_count_as_the_median():
    x = torch.randn(4000, K) + 0.5
    bits = looked(x)
    assert torch.equal(bits.median, x.sort(0).values[(4000 - 1) // 2])
    kept = torch.rand(4000, K) < 0.5
    found = bits.train()(torch.where(kept, x / 0.5, 0.0))
    assert float(found.gain) == pytest.approx(2.0)
    seen = torch.where(kept, x, bits.median)
    expected = torch.where(seen[:, bits.columns] >= bits.thresholds, 1.0, -1.0)
    signs = torch.ops.bitgnn.unpack(found.words, found.size)
    assert float((signs != expected).float().mean()) < 1e-3
    # A row without a single feature has the product of the medians, whatever was dropped.
    middle = torch.where(bits.median[bits.columns] >= bits.thresholds, 1.0, -1.0).double()
    nothing = values_of(bits(torch.zeros(1, K)))[0]
    torch.testing.assert_close(nothing, middle + bits.offset.double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.33, 0.5, 0.8])
def test_probability_of_dropout_is_recognised(p):
    x = torch.randn(4000, K)
    bits = looked(functional.dropout(x, p))
    found = bits.train()(functional.dropout(x, p))
    gain = 1.0 if found.gain is None else float(found.gain)
    # Multiples of 0.05 are exact; others are measured.
    assert gain == pytest.approx(1 / (1 - p), rel=1e-5 if p != 0.33 else 0.02)


@pytest.mark.parametrize(
    ("zeros", "p"), [(0.0, 0.5), (0.0, 0.2), (0.002, 0.0), (0.01, 0.0)], ids=str
)
def test_features_far_from_zero_have_the_same_bits_in_training(zeros, p):
    # Years, a few of them missing: a scale that is off by 1 % moves them by 20.
    x = (1990.0 + torch.randint(30, (2000, K))) * (torch.rand(2000, K) >= zeros)
    bits = looked(functional.dropout(x, p))
    evaluated = bits.eval()(x)
    seen = functional.dropout(x, p)
    trained = bits.train()(seen)
    one, other = (torch.ops.bitgnn.unpack(w.words, w.size) for w in (trained, evaluated))
    kept = (seen != 0)[:, bits.columns]
    assert float((one != other)[kept].float().mean()) < 0.005
    product = looked_up_linear(x, torch.randn(4, one.size(1)), evaluated, bits.unit)
    assert float(product.mean(0).abs().max()) < 0.2


@pytest.mark.parametrize("where", ["in front", "layer"])
@pytest.mark.parametrize("kind", ["gaussian", "words"])
def test_product_under_dropout_is_the_evaluated_one_on_average(where, kind):
    x = torch.randn(N, K) if kind == "gaussian" else words_of(0.1, 40)
    bits = looked(x)
    masked = bits.thresholds.numel() or 40
    weight, total, runs = torch.randn(8, masked), 0.0, 400
    expected = looked_up_linear(x, weight, bits.eval()(x), bits.unit)
    bits.train()
    for _ in range(runs):
        seen = functional.dropout(x, 0.5) if where == "in front" else x
        found = bits(seen, 0.5 if where == "layer" else 0.0)
        total = total + looked_up_linear(seen, weight, found, bits.unit)
    error = total / runs - expected
    # Single products deviate by about 1.
    assert float(error.square().mean().sqrt()) < 0.12
    slope = (total / runs * expected).sum() / expected.square().sum()
    assert 0.93 < float(slope) < 1.07


KINDS = pytest.mark.parametrize(
    "x",
    [lambda: torch.randn(N, K), lambda: words_of(0.1), lambda: torch.randn(N, K).requires_grad_()],
    ids=["thermometer", "pattern", "activation"],
)


@KINDS
@pytest.mark.parametrize("settled", [True, False], ids=["into another", "into a fresh one"])
def test_state_dict_round_trip(x, settled):
    x, edges = x(), torch.randint(0, N, (2, 2000))
    layer, other = GCNConv(K, 4, precision="bin"), GCNConv(K, 4, precision="bin")
    layer(functional.dropout(x, 0.5), edges)
    layer.eval()(x, edges)
    if settled:
        other((torch.rand(N, K) < 0.5).float() + torch.randn(N, K).round(), edges)
    other.load_state_dict(layer.state_dict())
    assert other.input_bits.kind == layer.input_bits.kind
    assert (other.role, other.letters) == (layer.role, layer.letters)
    state, loaded = layer.state_dict(), other.state_dict()
    assert state.keys() == loaded.keys()
    assert all(torch.equal(state[name], loaded[name]) for name in state)
    assert torch.equal(layer(x, edges), other.eval()(x, edges))
    before = [layer.train(), other.train()]
    assert torch.equal(*(one(x, edges) for one in before))


@pytest.mark.parametrize("inside", [0.0, 0.3])
def test_dropout_in_front_changes_no_mean(inside):
    """Looked at without dropout, columns with and without zeros of their own, as an example is."""
    rows = torch.randn(400, 6)
    rows[:, :3] = rows[:, :3].abs() * (torch.rand(400, 3) < 0.7)
    bits = InputBits("Layer").eval()
    bits.look_up(rows)
    assert bits.rare.tolist() == [False] * 3 + [True] * 3
    expected = values_of(bits(rows)).mean(0)
    bits.train()
    draws = [values_of(bits(functional.dropout(rows, 0.5), inside)) for _ in range(200)]
    assert torch.allclose(torch.stack(draws).mean(0).mean(0), expected, atol=0.06)
