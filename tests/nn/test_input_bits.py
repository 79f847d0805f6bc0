"""Inputs of layers: rows, patterns and activations, their operands, and dropout on them."""

import math

import pytest
import torch
from looked_up_inputs import STEP, K, N, looked, values_of, words_of
from torch.nn import functional

from bitgnn.nn import InputBits
from bitgnn.nn.inputs.input_statistics import OFTEN
from bitgnn.quantize.int8_linear import UNITS, InputRows, int8_linear
from bitgnn.quantize.looked_up_linear import looked_up_linear


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (lambda: words_of(0.1) * torch.rand(N, K), "pattern"),
        (lambda: functional.one_hot(torch.arange(N) % K, K).float(), "pattern"),
        (lambda: functional.one_hot(torch.arange(N) % 4).half(), "pattern"),
        (lambda: torch.zeros(N, K), "pattern"),
        (lambda: (torch.rand(N, K) < 0.7).float(), "rows"),
        (lambda: torch.randn(N, K).bfloat16(), "rows"),
        (lambda: words_of(0.1) * torch.randn(N, K), "rows"),
        (lambda: -words_of(0.1), "rows"),
        (lambda: torch.randn(N, 0), "rows"),
        (lambda: torch.randn(1, K), "rows"),
        (lambda: torch.randn(0, K), None),
    ],
)
def test_kind_of_features_follows_from_their_values(x, kind):
    x = x()
    bits, only = InputBits("Layer", x.size(1)), InputBits("Layer", x.size(1), only_rows=True)
    assert not bits.is_settled
    assert repr(bits) == "InputBits(not looked at yet)"
    bits.choose(x)
    only.choose(x)
    assert (bits.kind, only.kind, bits.is_settled) == (kind, "rows", kind is not None)
    found = bits(x)
    assert isinstance(found, InputRows) == (kind != "pattern")
    if kind is not None:
        assert repr(bits) == f"InputBits({kind}, {x.size(1)} columns)"
    for reads in (True, False):  # results of binary layers are activations whatever they hold
        bits.set_reads(reads)
        assert bits.kind == ("activation" if reads else kind)


def train(bits, *batches):
    for x in batches:
        bits.choose(x)
        bits(x)


def test_kind_follows_all_that_was_seen_at_first_and_stays_then():
    words, dense = words_of(0.1), torch.randn(N, K)
    for first, later, kind in ((words, dense, "rows"), (dense, words, "pattern")):
        bits = InputBits("Layer", K)
        # A dry run on one row of something else decides nothing; negatives are seen for good.
        train(bits, first[:1].abs(), later, later.clone(), later.clone())
        assert bits.kind == kind
    bits = InputBits("Layer", K)
    train(bits, *[words] * (OFTEN + 1), *[dense] * OFTEN)
    assert bits.kind == "pattern"
    state = bits.state_dict()
    other = InputBits("Layer", K)
    other.load_state_dict(state)
    train(other, *[dense] * 3)
    assert other.kind == "pattern"


DENSE = {
    "gaussian": lambda: torch.randn(N, K),
    "skew": lambda: torch.randn(N, K).exp(),
    "0 and 1": lambda: (torch.rand(N, K) < 0.7).float(),
    "integers": lambda: torch.randint(20, (N, K)) + 1.0,
    "one": lambda: torch.randn(N, 1),
    "odd": lambda: torch.randn(N, 33),
    "scales": lambda: torch.randn(N, K) * torch.logspace(-15, 15, K) + torch.logspace(-14, 14, K),
    "years": lambda: 1990.0 + torch.randint(30, (N, K)),
}


@pytest.mark.parametrize("name", DENSE)
def test_rows_are_standardised_columns_in_steps(name):
    x = DENSE[name]()
    bits = looked(x)
    assert bits.kind == "rows"
    centre, inverse = bits.scales()
    torch.testing.assert_close(centre, x.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(inverse, UNITS / x.std(0, correction=0), rtol=1e-4, atol=0.0)
    found, size = bits(x), x.size(1)
    expected = ((x - centre) * inverse).round().clamp(-127, 127)
    assert torch.equal(found.codes[:, :size].float(), expected)
    assert found.codes.shape == (N, -(-size // 16) * 16)
    assert not bool(found.codes[:, size:].any())
    assert (found.size, found.gain) == (size, 1.0)
    assert torch.isfinite(found.total).all()
    assert 20 < float(expected.std()) < 50


def test_columns_that_do_not_vary_are_zeros():
    x = torch.randn(N, 5)
    x[:, 0], x[:, 1], x[:, 2] = 0.0, 1e6, -0.3
    x[::2, 3], x[1::2, 3] = 0.1 + 1000, 0.1 + 1000.00001  # equal but for rounding
    bits = looked(x)
    assert (bits.scales()[1] == 0).tolist() == [True] * 4 + [False]
    other = torch.randn(N, 5) * 1e6
    assert not bool(bits(other).codes[:, :4].any())
    assert bool(bits(other).codes[:, 4].any())


@pytest.mark.parametrize(
    ("value", "code"), [(float("nan"), 0), (float("inf"), 127), (-1e30, -127), (1e-40, None)]
)
def test_values_far_away_in_evaluation(value, code):
    bits, x = looked(torch.randn(N, K)), torch.zeros(2, K)
    x[1, 3] = value
    found = bits(x)
    plain = bits(torch.zeros(1, K)).codes[0, 3]
    assert int(found.codes[1, 3]) == (int(plain) if code is None else code)
    assert found.total.isfinite().tolist() == [True, abs(value) < 1e38]


KINDS = {
    "rows": lambda: looked(torch.randn(N, K)),
    "pattern": lambda: looked(words_of(0.2)),
    "activation": lambda: looked(torch.randn(N, K), reads=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_changes_nothing_and_training_counts_where_it_records(kind):
    bits, x = KINDS[kind](), torch.rand(5, K) + 3
    before = {name: value.clone() for name, value in bits.state_dict().items()}

    def is_same():
        return all(torch.equal(before[name], value) for name, value in bits.state_dict().items())

    bits(x)
    assert is_same()
    with torch.no_grad():
        bits.train().choose(x)
        quiet = bits(x)
    assert is_same()
    loud = bits(x)
    assert is_same() == (kind == "activation")
    for one, two in zip(quiet, loud, strict=True):
        assert torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two


@pytest.mark.parametrize("kind", ["rows", "pattern"])
def test_products_have_no_mean(kind):
    x = 5 + 2 * torch.randn(N, K) if kind == "rows" else words_of(0.2) * torch.rand(N, K)
    bits, weight = looked(x), torch.randn(6, K)
    product = int8_linear if kind == "rows" else looked_up_linear
    out = product(x, weight, bits(x))
    assert float(out.mean(0).abs().max()) < (0.05 if kind == "rows" else 1e-3)
    assert 0.2 < float(out.std() / (weight.std() * K**0.5 if kind == "rows" else 1.0)) < 2.0


def test_pattern_is_what_is_above_zero():
    x = words_of(0.2) * torch.rand(N, K)
    bits = looked(x)
    found = bits(x)
    assert torch.equal(torch.ops.bitgnn.unpack(found.words, K) > 0, x > 0)
    assert torch.equal(found.offset, (found.offset / STEP).round() * STEP)
    assert float((found.offset + (x > 0).float().mean(0)).abs().max()) <= STEP
    assert float(found.unit) == pytest.approx(1 / math.sqrt(float((x > 0).sum()) / N), rel=1e-5)
    assert torch.equal(found.offset, bits.bit_offset)
    x[0, x[0] == 0] = 1e-40  # as good as 0 on every device
    assert torch.equal(looked(x).bit_offset, bits.bit_offset)


def test_activations_are_halves_of_both_signs():
    bits = looked(torch.randn(N, K), reads=True)
    x = torch.randn(N, K)
    assert torch.equal(values_of(bits(x)), torch.where(x > 0, 0.5, -0.5).double())
    assert float(bits.unit) == pytest.approx(2 / math.sqrt(K))
    assert bits(x).gain is None


@pytest.mark.parametrize("where", ["in front", "layer", "both"])
@pytest.mark.parametrize("kind", ["rows", "pattern", "activation"])
def test_product_under_dropout_is_the_evaluated_one_on_average(where, kind):
    x = words_of(0.1, 40) if kind == "pattern" else torch.randn(N, K)
    product = int8_linear if kind == "rows" else looked_up_linear
    size, in_front = x.size(1), where != "layer"
    bits, total, runs, weight = InputBits("Layer", size), 0.0, 300, torch.randn(8, x.size(1))
    bits.set_reads(kind == "activation")
    bits.set_kept(0.5 if in_front else 1.0)
    for _ in range(runs):
        seen = functional.dropout(x, 0.5) if in_front else x
        bits.choose(seen)
        found = bits(seen, 0.0 if where == "in front" else 0.5)
        total = total + product(seen, weight, found)
    expected = product(x, weight, bits.eval()(x, 0.5))
    assert bits.kind == kind
    slope = (total / runs * expected).sum() / expected.square().sum()
    # Rows with dropout in front have columns of twice the variance.
    assert float(slope) == pytest.approx(1.0, abs=0.1)
    error = (total / runs - slope * expected).square().mean().sqrt() / expected.std()
    assert float(error) < 0.2


@pytest.mark.parametrize("kind", ["pattern", "activation"])
def test_gradients_do_not_grow_with_the_dropout_of_the_layer(kind):
    x = words_of(0.1, 40) if kind == "pattern" else torch.randn(N, K)
    bits, weight = InputBits("Layer", x.size(1)), torch.randn(8, x.size(1))
    bits.set_reads(kind == "activation")
    bits.set_kept(0.5)
    found = []
    for dropout in (0.0, 0.5):
        bits.reset_parameters()
        bits.set_reads(kind == "activation")
        bits.set_kept(0.5)
        seen = x.clone().requires_grad_()
        bits.choose(seen)
        looked_up_linear(seen, weight, bits(seen, dropout)).sum().backward()
        found.append(seen.grad)
    assert found[0].abs().sum() > 0
    assert torch.allclose(found[0], found[1])


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0, 2.0])
def test_kept_share_lies_between_a_thousandth_and_one(share):
    bits = InputBits("Layer", K)
    assert bits.kept_share == 1.0
    bits.set_kept(share)
    assert bits.kept_share == pytest.approx(min(max(share, 1e-3), 1.0))
    bits.reset_parameters()
    assert bits.kept_share == 1.0
    assert not bits.is_settled


def test_only_zeros_under_dropout_are_a_pattern_if_few_are_their_own():
    x = torch.rand(N, K) + 0.1
    bits = InputBits("Layer", K)
    bits.set_kept(0.4)
    bits.choose(functional.dropout(x, 0.6))
    assert bits.kind == "rows"
