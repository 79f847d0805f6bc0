"""Products of 8-bit rows with 8-bit weights: the stated formula, and the stated gradients."""

import pytest
import torch
from torch import nn

from bitgnn.ops.int8 import quantise_weight
from bitgnn.quantize import int8_linear as int8
from bitgnn.quantize.int8_linear import UNITS, InputRows, column_factors, int8_affine, int8_linear

OUT = 5
SIZES = [(rows, size) for rows in (0, 1, 7) for size in (0, 1, 16, 33)]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def draw(rows, size, gain=1.0):
    """Floats, the operand made of them, and its integers as doubles."""
    x = torch.randn(rows, size) * 2
    centre, inverse = torch.randn(size) * 0.1, UNITS * (torch.rand(size) + 0.5)
    inverse[:1] = 0.0
    codes = torch.ops.bitgnn.pack_int8(x, centre, inverse)
    return (
        x,
        InputRows(codes, size, inverse, gain, x.sum(1), column_factors(inverse)),
        codes[:, :size].double(),
    )


def integers(weight):
    codes, steps = quantise_weight(weight)
    return codes[:, : weight.size(1)].double(), steps.double()


def norm_of(affine=True):
    norm = nn.BatchNorm1d(OUT, affine=affine).eval()
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm


def close(found, expected):
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "size"), SIZES)
@pytest.mark.parametrize("most", [int8.MOST_UNPACKED, 70], ids=["", "in pieces"])
def test_products_and_gradients_are_the_formula(rows, size, most, monkeypatch):
    monkeypatch.setattr(int8, "MOST_UNPACKED", most)
    x, operand, codes = draw(rows, size, gain=2.0)
    weight, given = torch.randn(OUT, size, requires_grad=True), torch.randn(rows, OUT)
    w_codes, steps = integers(weight)
    x.requires_grad_()
    out = int8_linear(x, weight, operand)
    assert (out.dtype, out.shape) == (torch.float32, (rows, OUT))
    close(out, 2.0 / UNITS * steps * (codes @ w_codes.t()))
    out.backward(given)
    left = 2.0 / UNITS * given.double()
    close(weight.grad, left.t() @ codes)
    inside = codes.abs() < 127
    close(x.grad, (left * steps) @ w_codes * operand.inverse_step * inside)
    assert not bool(x.grad[:, :1].any())  # a constant column


@pytest.mark.parametrize("affine", [True, False], ids=["affine", "not affine"])
def test_gain_and_norm_are_folded_and_count_as_constants(affine):
    x, operand, codes = draw(7, 33)
    weight, norm, gain = torch.randn(OUT, 33), norm_of(affine), torch.tensor([-0.7])
    w_codes, steps = integers(weight)
    plain = steps / UNITS * (codes @ w_codes.t())
    scale, shift = int8_affine(steps.float(), norm, gain)
    found = int8_linear(x, weight.requires_grad_(), operand, output_gain=gain, norm=norm)
    close(found, norm.double()(plain * gain.double()))
    assert torch.equal(found, scale * (codes @ w_codes.t()).float() + shift)
    norm.float()
    found.sum().backward()
    slope = gain.double() * (norm.running_var.double() + norm.eps).rsqrt() / UNITS
    slope = slope if norm.weight is None else slope * norm.weight.detach()
    close(weight.grad, slope.unsqueeze(1) * codes.sum(0))
    assert norm.weight is None or norm.weight.grad is None
    assert int8_affine(steps.float())[1] is None


def test_the_level_of_a_gain_gets_a_tenth_of_the_logarithms_gradient():
    x, operand, _ = draw(7, 33)
    level, gain = torch.zeros(1, requires_grad=True), torch.tensor([0.3])
    given, weight = torch.randn(7, OUT), torch.randn(OUT, 33)
    out = int8_linear(x, weight, operand, level=level, output_gain=gain)
    out.backward(given)
    close(level.grad, (given * out).sum().view(1) / 10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_result_has_the_dtype_of_the_input(dtype):
    x, operand, _ = draw(7, 33)
    x = x.to(dtype).requires_grad_()
    weight = torch.randn(OUT, 33).to(dtype).requires_grad_()
    out = int8_linear(x, weight, operand)
    assert torch.equal(out, int8_linear(x.float(), weight.float(), operand).to(dtype))
    out.sum().backward()
    assert (out.dtype, x.grad.dtype, weight.grad.dtype) == (dtype, dtype, dtype)


def test_autocast_changes_nothing():
    x, operand, _ = draw(7, 33)
    weight = torch.randn(OUT, 33)
    expected = int8_linear(x, weight, operand)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(int8_linear(x, weight, operand), expected)


def test_weights_that_are_zeros_or_not_finite():
    x, operand, _ = draw(7, 33)
    weight = torch.randn(OUT, 33)
    weight[0], weight[1, 3], weight[2, 4] = 0.0, torch.nan, torch.inf
    weight.requires_grad_()
    out = int8_linear(x, weight, operand)
    assert not bool(out[:, 0].any())
    assert not bool(out[:, 1:3].isfinite().any())
    assert bool(out[:, 3:].isfinite().all())
    out[:, 0].sum().backward()
    assert bool(weight.grad[0].any())  # a row of zeros learns


def test_a_derivative_of_the_gradient_is_refused():
    x, operand, _ = draw(7, 33)
    weight = torch.randn(OUT, 33, requires_grad=True)
    out = int8_linear(x.requires_grad_(), weight, operand)
    (gradient,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"^Int8Linear: its gradient is a surrogate"):
        gradient.square().sum().backward()


def test_weights_act_on_features_of_their_own_scale_within_bounds():
    deviations = torch.tensor([1.0, 2.0, 0.5, 100.0, 0.01])
    inverse_step = torch.cat([UNITS / deviations, torch.zeros(1)])
    weight = torch.randn(3, 6)
    expected = weight * torch.tensor([1.0, 2.0, 0.5, 4.0, 0.25, 1.0])
    torch.testing.assert_close(weight * column_factors(inverse_step), expected)
    torch.testing.assert_close(weight * column_factors(inverse_step / 1000.0), expected)
    constant = torch.zeros(6)
    assert torch.equal(weight * column_factors(constant), weight)
    assert column_factors(torch.zeros(0)).shape == (0,)
