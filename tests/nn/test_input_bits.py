"""What a layer sees of its input: which kind of bits, their thresholds and their means."""

import math
import warnings

import pytest
import torch
from looked_up_inputs import STEP, K, N, looked, values_of, words_of
from torch.nn import functional

from bitgnn.nn import InputBits
from bitgnn.nn.thermometer import LEVELS
from bitgnn.quantize.looked_up_linear import looked_up_linear


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (lambda: words_of(0.1) * torch.rand(N, K), "pattern"),
        (lambda: functional.one_hot(torch.arange(N) % K, K).float(), "pattern"),
        (lambda: functional.one_hot(torch.arange(N) % 4).float(), "pattern"),
        (lambda: functional.one_hot(torch.arange(N) % 4).float().requires_grad_(), "activation"),
        (lambda: (torch.rand(N, K) < 0.7).float(), "thermometer"),
        (lambda: torch.randn(N, K).half(), "thermometer"),
        (lambda: words_of(0.1) * torch.randn(N, K), "thermometer"),
        (lambda: -words_of(0.1), "thermometer"),
        (lambda: torch.randn(0, K), "pattern"),
        (lambda: torch.randn(N, 0), "pattern"),
        (lambda: torch.randn(N, K).requires_grad_(), "activation"),
        (lambda: torch.randn(1, K), "thermometer"),
    ],
)
def test_kind_follows_from_the_values(x, kind):
    bits = InputBits("Layer")
    assert not bits.is_settled
    assert "not looked at yet" in repr(bits)
    x = x()
    bits.look_up(x)
    assert bits.is_settled
    assert bits.kind == kind
    assert kind in repr(bits)
    found = bits(x)
    assert found.words.size(0) == x.size(0)
    assert found.zero_one == (kind != "thermometer")
    assert found.size == (bits.thresholds.numel() if kind == "thermometer" else x.size(1))


def check_no_mean(bits, x):
    """Products have a mean of 0, and offsets are multiples of a step."""
    found = bits(x)
    out = looked_up_linear(x, torch.randn(6, found.size), found, bits.unit)
    assert float(out.mean(0).abs().max()) < 1e-3
    assert torch.equal(bits.offset, (bits.offset / STEP).round() * STEP)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")], ids=str)
def test_columns_that_are_not_finite_are_named(bad):
    x = torch.randn(N, K)
    x[3, 2], x[5, 7], x[6, 7] = bad, bad, bad
    bits = InputBits("GCNConv")
    with pytest.raises(ValueError, match=r"^GCNConv: x must be finite .* in columns 2, 7$"):
        bits.look_up(x)
    assert not bits.is_settled
    x[0, :7] = bad
    with pytest.raises(ValueError, match=r"in columns 0, 1, 2, 3, 4, \.\.\.$"):
        bits.look_up(x)


def with_constant(columns, kind="dense"):
    x = torch.randn(30, K) if kind == "dense" else (torch.rand(30, K) < 0.2).float()
    x[0], x[1] = (x[0], x[1]) if kind == "dense" else (0.0, 1.0)
    x[:, columns] = torch.arange(1.0, len(columns) + 1) if kind == "dense" else 0.0
    return x


@pytest.mark.parametrize(
    ("kind", "columns", "message"),
    [
        ("dense", [3], r"^Layer: x must vary .* value in all 30 rows of column 3, whose bits say"),
        ("dense", [0, 4, 5], r"in all 30 rows of columns 0, 4, 5, whose bits say nothing$"),
        ("dense", range(1, 8), r"in all 30 rows of columns 1, 2, 3, 4, 5, \.\.\., whose"),
        ("dense", range(K), r"got 30 equal rows, whose bits tell no node from another$"),
        ("words", range(K), r"got 30 equal rows, whose bits tell no node from another$"),
    ],
)
def test_constant_columns_are_named_and_keep_one_bit(kind, columns, message):
    x = with_constant(list(columns), kind)
    with pytest.warns(UserWarning, match=message) as caught:
        bits = looked(x)
    assert len(caught) == 1
    if kind == "dense":
        place = bits.columns == columns[0]
        assert bits.thresholds[place].tolist() == [1.0]
        assert bits.offset[place].tolist() == [-1.0]
        assert bool((values_of(bits(x))[:, place] == 0).all())


def test_what_is_usual_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for columns, kind in (([], "dense"), ([], "words"), ([2, 3, 4], "words")):
            looked(with_constant(columns, kind))
        looked(with_constant([0, 1])[:1])


@pytest.mark.parametrize("values", [2, 3, 16, 17])
def test_few_values_get_few_bits(values):
    x = torch.randint(values, (N, K)).float() + 1
    bits = looked(x)
    numbers = torch.bincount(bits.columns, minlength=K)
    if values <= LEVELS + 1:
        assert numbers.tolist() == [values - 1] * K
        middles = torch.arange(1, values) + 0.5
        assert torch.equal(bits.thresholds.view(K, -1), middles.expand(K, -1))
    else:
        assert int(numbers.max()) <= LEVELS


@pytest.mark.parametrize(
    "x",
    [
        lambda: torch.randn(N, K),
        lambda: torch.randn(N, K).exp(),
        lambda: (torch.rand(N, K) < 0.7).float(),
        lambda: torch.randn(N, K) * words_of(0.5),
        lambda: torch.randint(20, (N, K)) + 1.0,
        lambda: torch.randn(N, 1),
        lambda: torch.randn(N, 3 * 32),
        lambda: torch.randn(N, K) * 1e-30,
        lambda: torch.randn(N, K) * 1e30,
    ],
    ids=["gaussian", "skew", "0 and 1", "sparse", "integers", "one", "wide", "tiny", "huge"],
)
def test_bits_of_a_thermometer_are_comparisons(x):
    x = x()
    bits = looked(x)
    expected = torch.where(x[:, bits.columns] >= bits.thresholds, 1.0, -1.0)
    assert torch.equal(torch.ops.bitgnn.unpack(bits(x).words, expected.size(1)), expected)
    numbers = torch.bincount(bits.columns, minlength=x.size(1))
    assert 1 <= int(numbers.min()) <= int(numbers.max()) <= LEVELS
    assert bool((bits.columns.diff() >= 0).all())
    assert float(bits.unit) == pytest.approx(1 / math.sqrt(expected.size(1)))
    # No bit is wasted, and the offset is minus the mean, in steps.
    assert bool((expected.min(0).values < expected.max(0).values).all())
    assert float((bits.offset + expected.mean(0)).abs().max()) <= STEP
    check_no_mean(bits, x)


def test_zero_has_a_level_of_its_own_where_it_is_frequent():
    x = torch.randn(N, K) * words_of(0.5)
    bits = looked(x)
    signs = torch.ops.bitgnn.unpack(bits(x).words, bits.thresholds.numel())
    for feature in range(K):
        own, values = signs[:, bits.columns == feature], x[:, feature]
        zero = own[values == 0]
        assert bool((zero == zero[0]).all())
        assert not bool((own[values != 0] == zero[0]).all(1).any())


def test_pattern_is_what_is_above_zero():
    x = words_of(0.2) * torch.rand(N, K)
    bits = looked(x)
    found = bits(x)
    assert torch.equal(torch.ops.bitgnn.unpack(found.words, K) > 0, x > 0)
    assert float((bits.offset + (x > 0).float().mean(0)).abs().max()) <= STEP
    assert float(bits.unit) == pytest.approx(1 / math.sqrt(float((x > 0).sum()) / N), rel=1e-5)
    check_no_mean(bits, x)
    x[0, x[0] == 0] = 1e-40  # as good as 0 on every device
    assert torch.equal(looked(x).offset, bits.offset)


def test_activations_are_halves_of_both_signs():
    bits = looked(torch.randn(N, K).requires_grad_())
    x = torch.randn(N, K)
    assert torch.equal(values_of(bits(x)), torch.where(x > 0, 0.5, -0.5).double())
    assert float(bits.unit) == pytest.approx(2 / math.sqrt(K))
    assert bits(x).gain is None
    assert bits(x).columns is None


def test_other_features_and_columns_are_refused():
    x = torch.randn(N, K)
    bits = looked(x, "GCNConv")
    with pytest.raises(ValueError, match=rf"^GCNConv: x must be \[N, {K}\], got \[{N}, {K - 1}\]$"):
        bits(x[:, 1:])
    state = bits.state_dict()
    state["columns"] = state["columns"] + K
    with pytest.raises(ValueError, match=rf"columns must lie in \[0, {K}\)"):
        InputBits("GCNConv").load_state_dict(state)
