"""Products of looked-up bits with binary weights: the stated formula, and the stated gradients."""

import pytest
import torch
from torch import nn

from bitgnn.quantize import looked_up_linear as looked_up
from bitgnn.quantize import sgn
from bitgnn.quantize.looked_up_linear import (
    InputWords,
    looked_up_linear,
    output_affine,
    trained_products,
)

OUT = 5
SIZES = [(rows, size) for rows in (0, 1, 7) for size in (0, 1, 31, 33)]
KINDS = pytest.mark.parametrize("zero_one", [False, True], ids=["signs", "zero or one"])


def _draw(rows, size, zero_one, gain, offset, columns=None):
    """Random bits, packed, and the doubles that they stand for."""
    bits = torch.rand(rows, size) < 0.4
    words = torch.ops.bitgnn.pack(torch.where(bits, 1.0, -1.0))
    values = bits.double() if zero_one else bits.double() * 2 - 1
    gain = torch.tensor(1.75) if gain else None
    offset = (torch.rand(size) * 2**16).round() / 2**16 - 0.5 if offset else None
    values = values * (1.0 if gain is None else gain.double())
    values = values + (0.0 if offset is None else offset.double())
    return InputWords(words, size, zero_one, gain, offset, columns), values


def _weight(size):
    """Latent weights on both sides of the clip, a 0 among them."""
    weight = torch.randn(OUT, size)
    weight[:, :1] = torch.tensor([0.0, 1.0, -1.0, 1.001, -1.001]).unsqueeze(1)
    return weight


def _norm():
    norm = nn.BatchNorm1d(OUT).eval()
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@KINDS
@pytest.mark.parametrize(("rows", "size"), SIZES)
@pytest.mark.parametrize("gain", [False, True], ids=["", "gain"])
@pytest.mark.parametrize("offset", [False, True], ids=["", "offset"])
def test_forward_is_the_formula(rows, size, zero_one, gain, offset):
    words, values = _draw(rows, size, zero_one, gain, offset)
    x, weight, unit = torch.randn(rows, size), _weight(size), torch.tensor(0.3)
    signs = sgn(weight).double()
    gain, norm = torch.tensor([0.7]), _norm()
    plain = unit.double() * values @ signs.t()
    out = looked_up_linear(x, weight, words, unit)
    assert (out.dtype, out.shape) == (torch.float32, (rows, OUT))
    torch.testing.assert_close(out.double(), plain, rtol=1e-5, atol=1e-5)
    out = looked_up_linear(x, weight, words, unit, gain)
    torch.testing.assert_close(out.double(), plain * gain.double(), rtol=1e-5, atol=1e-5)
    out = looked_up_linear(x, weight, words, unit, None, norm)
    with torch.no_grad():
        behind = norm.double()(plain)
    torch.testing.assert_close(out.detach().double(), behind, rtol=1e-5, atol=1e-5)


@KINDS
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "not affine"])
def test_scale_and_shift_are_those_of_the_product(zero_one, affine):
    words, _ = _draw(7, 33, zero_one, False, True)
    weight, unit, gain = _weight(33), torch.tensor(0.3), torch.tensor([-0.4])
    norm = _norm() if affine else nn.BatchNorm1d(OUT, affine=False).eval()
    scale, shift = output_affine(weight, unit, zero_one, words.offset, gain, norm)
    bits = torch.ops.bitgnn.unpack(words.words, 33)
    expected = looked_up_linear(torch.zeros(7, 33), weight, words, unit, gain, norm)
    torch.testing.assert_close(scale * (bits @ sgn(weight).t()) + shift, expected)
    assert not scale.requires_grad
    assert scale.is_contiguous()


@KINDS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_result_has_the_dtype_of_the_input(zero_one, dtype):
    words, values = _draw(7, 33, zero_one, True, True)
    weight, unit = _weight(33), torch.tensor(0.25)
    x = torch.randn(7, 33, dtype=dtype, requires_grad=True)
    held = weight.to(dtype).requires_grad_()
    out = looked_up_linear(x, held, words, unit)
    expected = unit.double() * values @ sgn(weight).double().t()
    torch.testing.assert_close(out.double(), expected, rtol=1e-2, atol=1e-2)
    out.sum().backward()
    assert (out.dtype, x.grad.dtype, held.grad.dtype) == (dtype, dtype, dtype)


def test_autocast_changes_nothing():
    words, _ = _draw(7, 33, True, False, True)
    x, weight, unit = torch.randn(7, 33), _weight(33), torch.tensor(0.3)
    expected = looked_up_linear(x, weight, words, unit)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(looked_up_linear(x, weight, words, unit), expected)


@KINDS
@pytest.mark.parametrize(("rows", "size"), SIZES)
@pytest.mark.parametrize("most", [looked_up.MOST_UNPACKED, 70], ids=["", "in pieces"])
@pytest.mark.parametrize("gain", [False, True], ids=["", "gain"])
@pytest.mark.parametrize("offset", [False, True], ids=["", "offset"])
def test_gradient_of_the_weights_is_the_formula(
    rows, size, zero_one, gain, offset, most, monkeypatch
):
    monkeypatch.setattr(looked_up, "MOST_UNPACKED", most)
    words, values = _draw(rows, size, zero_one, gain, offset)
    weight, unit = _weight(size).requires_grad_(), torch.tensor(0.3)
    x, given = torch.randn(rows, size), torch.randn(rows, OUT)
    looked_up_linear(x, weight, words, unit).backward(given)
    expected = unit.double() * given.double().t() @ values * (weight.detach().abs() <= 1)
    torch.testing.assert_close(weight.grad.double(), expected, rtol=1e-5, atol=1e-5)
    if rows == 7 and size == 33:
        is_clipped = torch.tensor([False, False, False, True, True])  # an edge is inside
        assert torch.equal(weight.grad[:, 0] == 0, is_clipped)


@KINDS
@pytest.mark.parametrize(("rows", "size"), SIZES)
@pytest.mark.parametrize("gain", [False, True], ids=["", "gain"])
@pytest.mark.parametrize("window", [None, 0.5], ids=["all", "window"])
def test_gradient_of_the_activations_is_the_formula(rows, size, zero_one, gain, window):
    words, _ = _draw(rows, size, zero_one, gain, False)
    weight, unit = _weight(size), torch.tensor(0.3)
    x, given = torch.randn(rows, size), torch.randn(rows, OUT)
    x[:1, :1] = 0.5  # the edge belongs to the window
    x.requires_grad_()
    half = None if window is None else torch.tensor(window)
    looked_up_linear(x, weight, words._replace(window=half), unit).backward(given)
    expected = unit.double() * (1.75 if gain else 1.0) * given.double() @ sgn(weight).double()
    if window is not None:
        expected = expected * (x.detach().abs() <= window)
    torch.testing.assert_close(x.grad.double(), expected, rtol=1e-5, atol=1e-5)


def test_columns_of_a_thermometer_are_summed_without_window():
    columns = torch.tensor([0] * 15 + [1] + [3] * 15 + [4] * 2)
    words, values = _draw(7, 33, False, True, True, columns)
    weight, unit = _weight(33).requires_grad_(), torch.tensor(0.3)
    x, given = torch.randn(7, 5, requires_grad=True), torch.randn(7, OUT)
    looked_up_linear(x, weight, words._replace(window=torch.tensor(1e-9)), unit).backward(given)
    each = unit.double() * 1.75 * given.double() @ sgn(weight.detach()).double()
    expected = torch.stack([each[:, columns == feature].sum(1) for feature in range(5)], dim=1)
    torch.testing.assert_close(x.grad.double(), expected, rtol=1e-5, atol=1e-5)
    assert bool((x.grad[:, 2] == 0).all())  # a feature without bits
    expected = unit.double() * given.double().t() @ values * (weight.detach().abs() <= 1)
    torch.testing.assert_close(weight.grad.double(), expected, rtol=1e-5, atol=1e-5)


@KINDS
def test_gain_and_norm_count_as_constants(zero_one):
    words, values = _draw(7, 33, zero_one, False, True)
    weight, unit, norm = _weight(33).requires_grad_(), torch.tensor(0.3), _norm()
    x, given = torch.randn(7, 33, requires_grad=True), torch.randn(7, OUT)
    gain = torch.tensor([0.7], requires_grad=True)
    looked_up_linear(x, weight, words, unit, gain, norm).backward(given)
    slope = norm.weight.detach().double() * (norm.running_var.double() + norm.eps).rsqrt()
    left = given.double() * slope * unit.double() * gain.detach().double()
    torch.testing.assert_close(
        x.grad.double(), left @ sgn(weight.detach()).double(), rtol=1e-5, atol=1e-5
    )
    expected = left.t() @ values * (weight.detach().abs() <= 1)
    torch.testing.assert_close(weight.grad.double(), expected, rtol=1e-5, atol=1e-5)
    assert gain.grad is None
    assert norm.weight.grad is None


def test_nothing_is_computed_for_what_needs_no_gradient():
    words, _ = _draw(7, 33, True, False, False)
    x, weight = torch.randn(7, 33, requires_grad=True), _weight(33)
    looked_up_linear(x, weight, words, torch.tensor(0.3)).sum().backward()
    assert weight.grad is None
    frozen = looked_up_linear(x.detach(), weight, words, torch.tensor(0.3))
    assert not frozen.requires_grad


@KINDS
@pytest.mark.parametrize("gain", [False, True], ids=["", "gain"])
@pytest.mark.parametrize("offset", [False, True], ids=["", "offset"])
def test_products_in_front_of_norms_are_the_products(zero_one, gain, offset):
    words, _ = _draw(7, 33, zero_one, gain, offset)
    unit, given = torch.tensor(0.3), torch.randn(2, 7, OUT)
    weights = [_weight(33).requires_grad_() for _ in range(2)]
    x = torch.randn(7, 33, requires_grad=True)

    def gradients(outs):
        norms = [nn.BatchNorm1d(OUT)(out) for out in outs]
        total = sum((norm * by).sum() for norm, by in zip(norms, given, strict=True))
        return torch.autograd.grad(total, [x, *weights])

    plain = [looked_up_linear(x, weight, words, unit) for weight in weights]
    joint = trained_products(x, torch.cat(weights), words, unit, parts=2)
    assert all(out.is_contiguous() for out in joint)
    torch.testing.assert_close(list(joint), plain)
    for found, expected in zip(gradients(joint), gradients(plain), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
