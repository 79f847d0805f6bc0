"""Activations under dropout: bits that it takes count as 0 where its mask can be read."""

import pytest
import torch
from looked_up_inputs import K, N, looked
from torch.nn import functional

from bitgnn.nn.roles import kept_entries
from bitgnn.quantize import sgn
from bitgnn.quantize.looked_up_linear import looked_up_linear

OUT = 5


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def _ternary(x, mask, share):
    """-1/2, 0 and +1/2, over the share that is kept."""
    return torch.where(x > 0, 0.5, -0.5).double() * mask / share


@pytest.mark.parametrize("size", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("rows", [7, 40])
def test_product_and_gradients_are_those_of_the_values(rows, size):
    source = torch.randn(rows, size, requires_grad=True)
    x = functional.dropout(source, 0.5)
    bits = looked(torch.randn(4, size).requires_grad_()).train()
    entries = kept_entries(x)
    found = bits(x, kept=entries)
    values = _ternary(x.detach(), entries.mask, 0.5)
    weight = (0.5 * torch.randn(OUT, size)).requires_grad_()
    window = torch.tensor(1.0)
    out = looked_up_linear(x, weight, found, bits.unit, window=window)
    unit, signs = bits.unit.double(), sgn(weight.detach()).double()
    torch.testing.assert_close(out.double(), unit * values @ signs.t(), rtol=1e-5, atol=1e-5)
    given = torch.randn(rows, OUT)
    out.backward(given)
    expected = unit * given.double().t() @ values * (weight.detach().abs() <= 1)
    torch.testing.assert_close(weight.grad.double(), expected, rtol=1e-5, atol=1e-5)
    # What the layer hands to dropout, which multiplies by the mask and by 2.
    inner = unit * given.double() @ signs * (x.detach().abs() <= window)
    torch.testing.assert_close(
        source.grad.double(), inner * entries.mask * 2.0, rtol=1e-5, atol=1e-5
    )


def test_dropout_changes_no_mean_and_the_layers_own_adds_to_it():
    bits = looked(torch.randn(N, K).requires_grad_()).train()
    source = torch.randn(1, K).expand(20_000, K).contiguous().requires_grad_()
    x = functional.dropout(source.relu(), 0.5)
    entries = kept_entries(x)
    found = bits(x, 0.2, entries)
    kept = torch.ops.bitgnn.unpack(found.kept, K) > 0
    assert not bool((kept & ~entries.mask).any())
    assert float(kept.float().mean()) == pytest.approx(0.4, abs=0.01)
    assert float(found.gain) == pytest.approx(2.5, rel=1e-3)
    signs = torch.ops.bitgnn.unpack(found.words, K)
    values = ((signs > 0).double() - 0.5) * kept * float(found.gain)
    expected = torch.where(source[0] > 0, 0.5, -0.5).double()
    torch.testing.assert_close(values.mean(0), expected, rtol=0, atol=0.03)
