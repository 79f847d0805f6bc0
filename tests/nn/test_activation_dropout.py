"""Activations under dropout: bits that it takes count as 0 where its mask can be read."""

import pytest
import torch
from looked_up_inputs import looked
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
    out = looked_up_linear(x, weight, found._replace(window=window), bits.unit)
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
