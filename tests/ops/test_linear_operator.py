"""Products of signs with float weights: precision of the digits, exact results, clear errors."""

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn import BitTensor
from bitgnn.ops import linear
from bitgnn.ops.linear import bits_linear, weight_digits
from bitgnn.ops.reference.bmm import digits_in_order


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [1, 31, 32, 33, 500])
@pytest.mark.parametrize("factor", [1.0, 1e-30, 1e30])
def test_digits_hold_weights_to_half_a_step(size, factor):
    weight = drawn(7, size) * factor
    weight[3] = 0.0
    weight[4, 0] = 1e4 * factor
    digits, step = weight_digits(weight)
    places = digits_in_order(digits).double()
    whole = 65536 * places[0] + 256 * places[1] + places[2]
    assert (whole[:, size:] == 0).all()
    held = whole[:, :size] * step.double().unsqueeze(1)
    assert ((held - weight.double()).abs() <= 0.5001 * step.double().unsqueeze(1)).all()
    assert (step.double() <= weight.double().abs().amax(1) * 2.0**-22 + 1e-44).all()


@pytest.mark.parametrize(("n", "k", "m"), [(1, 1, 1), (70, 33, 5), (300, 256, 14), (40, 602, 41)])
@pytest.mark.parametrize("scale", [False, True])
def test_equals_the_float_product(n, k, m, scale, device):
    floats, weight, bias, addend = drawn(n, k), drawn(m, k, seed=1), drawn(m), drawn(n, m, seed=2)
    x = BitTensor.from_float(floats, scale="mean")
    signs = torch.where(floats >= 0, 1.0, -1.0).double()
    factor = x.scale.double().unsqueeze(1) if scale else 1.0
    expected = factor * (signs @ weight.double().t()) + bias + addend
    digits, step = (t.to(device) for t in weight_digits(weight))
    given = {"scale": scale, "bias": bias.to(device), "addend": addend.to(device)}
    found = bits_linear(x.to(device), digits, step, **given)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(bits_linear(x.to(device), digits, step, **given), found)


def shifted(t, places):
    """An equal tensor that begins so many elements behind a boundary of memory."""
    memory = torch.cat([t.new_zeros(places), t.flatten()])
    return memory[places:].view(t.shape)


@pytest.mark.parametrize("places", [1, 2, 3])
def test_operands_that_begin_anywhere(places, device):
    x = BitTensor.from_float(drawn(70, 256)).to(device)
    digits, step = (t.to(device) for t in weight_digits(drawn(9, 256, seed=1)))
    moved = BitTensor(shifted(x.words, places), x.size)
    expected = bits_linear(x, digits, step)
    assert torch.equal(bits_linear(moved, shifted(digits, places), shifted(step, places)), expected)


X = BitTensor.from_float(torch.ones(6, 40))
DIGITS, STEP = weight_digits(torch.ones(5, 40))
WRONG = r"""
weight_digits(torch.full((2, 3), float("nan"))) -> ValueError: must be finite
weight_digits(torch.ones(3)) -> ValueError: weight must be \[M, K\]
bits_linear(X, DIGITS[:, :, :1], STEP)
    -> ValueError: digits must be torch.int8 \[3, 5, 2, 8, 4\], got torch.int8 \[3, 5, 1, 8, 4\]
bits_linear(X, DIGITS.int(), STEP) -> ValueError: got torch.int32
bits_linear(X, DIGITS, STEP.unsqueeze(0)) -> ValueError: step must have shape
bits_linear(X, DIGITS, STEP, bias=torch.ones(4)) -> ValueError: bias .*\[5\], got \[4\]
bits_linear(X, DIGITS, STEP, addend=torch.ones(6, 4))
    -> ValueError: addend must be torch.float32 \[6, 5\], got torch.float32 \[6, 4\]
bits_linear(BitTensor.from_float(torch.ones(1, MOST_FEATURES + 1)), DIGITS, STEP)
    -> ValueError: at most \d+ features
"""


def test_errors():
    check_wrong_calls(WRONG, vars(linear) | globals())
