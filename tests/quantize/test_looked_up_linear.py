"""Products of looked-up bits with binary weights: the stated formula, and the stated gradients."""

import itertools

import pytest
import torch
from looked_up_inputs import looked
from torch import nn

from bitgnn.nn.roles import kept_entries
from bitgnn.quantize import looked_up_linear as looked_up
from bitgnn.quantize import sgn
from bitgnn.quantize.looked_up_linear import (
    InputWords,
    looked_up_linear,
    output_affine,
    trained_products,
)

OUT = 5
UNIT = torch.tensor(0.3)
GAIN = 1.75
SIZES = [(rows, size) for rows in (0, 1, 7) for size in (0, 1, 31, 33)]
KINDS = pytest.mark.parametrize("zero_one", [False, True], ids=["signs", "zero or one"])
FORMS = pytest.mark.parametrize(("gain", "offset"), [*itertools.product((False, True), repeat=2)])


def _close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found.double(), expected.double(), rtol=tolerance, atol=tolerance)


def _draw(rows, size, zero_one, gain=False, offset=False, columns=None):
    """Random bits, packed, and the doubles that they stand for."""
    bits = torch.rand(rows, size) < 0.4
    words = torch.ops.bitgnn.pack(torch.where(bits, 1.0, -1.0))
    values = bits.double() if zero_one else bits.double() * 2 - 1
    offset = (torch.rand(size) * 2**16).round() / 2**16 - 0.5 if offset else None
    values = values * (GAIN if gain else 1.0) + (0.0 if offset is None else offset.double())
    gain = torch.tensor(GAIN) if gain else None
    return InputWords(words, size, zero_one, gain, offset, columns), values


def _weight(size):
    """Latent weights on both sides of the clip, a 0 among them."""
    weight = torch.randn(OUT, size)
    weight[:, :1] = torch.tensor([0.0, 1.0, -1.0, 1.001, -1.001]).unsqueeze(1)
    return weight.requires_grad_()


def _norm(affine=True):
    norm = nn.BatchNorm1d(OUT, affine=affine).eval()
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm


def _weight_gradient(left, values, weight):
    """``left^T values`` where the weight is not clipped; an edge is inside."""
    return left.double().t() @ values * (weight.detach().abs() <= 1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@KINDS
@FORMS
@pytest.mark.parametrize(("rows", "size"), SIZES)
@pytest.mark.parametrize("most", [looked_up.MOST_UNPACKED, 70], ids=["", "in pieces"])
def test_products_and_gradients_are_the_formula(
    rows, size, zero_one, gain, offset, most, monkeypatch
):
    monkeypatch.setattr(looked_up, "MOST_UNPACKED", most)
    words, values = _draw(rows, size, zero_one, gain, offset)
    x, weight, given = torch.randn(rows, size), _weight(size), torch.randn(rows, OUT)
    signs = sgn(weight).double()
    plain = UNIT.double() * values @ signs.t()
    out = looked_up_linear(x, weight, words, UNIT)
    assert (out.dtype, out.shape) == (torch.float32, (rows, OUT))
    _close(out, plain)
    out.backward(given)
    _close(weight.grad, _weight_gradient(UNIT.double() * given, values, weight))
    factor, norm = torch.tensor([0.7]), _norm()
    _close(looked_up_linear(x, weight, words, UNIT, factor), plain * factor.double())
    found = looked_up_linear(x, weight, words, UNIT, None, norm)
    _close(found, norm.double()(plain))


@KINDS
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "not affine"])
def test_scale_and_shift_are_those_of_the_product(zero_one, affine):
    words, _ = _draw(7, 33, zero_one, offset=True)
    weight, gain, norm = _weight(33), torch.tensor([-0.4]), _norm(affine)
    scale, shift = output_affine(weight, UNIT, zero_one, words.offset, gain, norm)
    bits = torch.ops.bitgnn.unpack(words.words, 33)
    expected = looked_up_linear(torch.zeros(7, 33), weight, words, UNIT, gain, norm)
    torch.testing.assert_close(scale * (bits @ sgn(weight).t()) + shift, expected.detach())
    assert not scale.requires_grad
    assert scale.is_contiguous()


@KINDS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_result_has_the_dtype_of_the_input(zero_one, dtype):
    words, values = _draw(7, 33, zero_one, True, True)
    x = torch.randn(7, 33, dtype=dtype, requires_grad=True)
    held = _weight(33).detach().to(dtype).requires_grad_()
    out = looked_up_linear(x, held, words, UNIT)
    _close(out, UNIT.double() * values @ sgn(held).double().t(), 1e-2)
    out.sum().backward()
    assert (out.dtype, x.grad.dtype, held.grad.dtype) == (dtype, dtype, dtype)


def test_autocast_changes_nothing():
    words, _ = _draw(7, 33, True, offset=True)
    x, weight = torch.randn(7, 33), _weight(33)
    expected = looked_up_linear(x, weight, words, UNIT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(looked_up_linear(x, weight, words, UNIT), expected)


@KINDS
@pytest.mark.parametrize(("rows", "size"), SIZES)
@pytest.mark.parametrize("gain", [False, True], ids=["", "gain"])
@pytest.mark.parametrize("window", [None, 0.5], ids=["all", "window"])
def test_gradient_of_the_activations_is_the_formula(rows, size, zero_one, gain, window):
    words, _ = _draw(rows, size, zero_one, gain)
    weight, x, given = _weight(size).detach(), torch.randn(rows, size), torch.randn(rows, OUT)
    x[:1, :1] = 0.5  # the edge belongs to the window
    x.requires_grad_()
    half = None if window is None else torch.tensor(window)
    looked_up_linear(x, weight, words._replace(window=half), UNIT).backward(given)
    expected = UNIT.double() * (GAIN if gain else 1.0) * given.double() @ sgn(weight).double()
    _close(x.grad, expected if window is None else expected * (x.detach().abs() <= window))
    assert weight.grad is None
    assert not looked_up_linear(x.detach(), weight, words, UNIT).requires_grad


def test_columns_of_a_thermometer_are_summed_without_window():
    columns = torch.tensor([0] * 15 + [1] + [3] * 15 + [4] * 2)
    words, values = _draw(7, 33, False, True, True, columns)
    weight, x, given = _weight(33), torch.randn(7, 5, requires_grad=True), torch.randn(7, OUT)
    looked_up_linear(x, weight, words._replace(window=torch.tensor(1e-9)), UNIT).backward(given)
    each = UNIT.double() * GAIN * given.double() @ sgn(weight.detach()).double()
    _close(x.grad, torch.stack([each[:, columns == k].sum(1) for k in range(5)], dim=1))
    assert bool((x.grad[:, 2] == 0).all())  # a feature without bits
    _close(weight.grad, _weight_gradient(UNIT.double() * given, values, weight))


@KINDS
def test_gain_and_norm_count_as_constants(zero_one):
    words, values = _draw(7, 33, zero_one, offset=True)
    weight, norm, gain = _weight(33), _norm(), torch.tensor([0.7], requires_grad=True)
    x, given = torch.randn(7, 33, requires_grad=True), torch.randn(7, OUT)
    looked_up_linear(x, weight, words, UNIT, gain, norm).backward(given)
    slope = norm.weight.detach().double() * (norm.running_var.double() + norm.eps).rsqrt()
    left = given.double() * slope * UNIT.double() * gain.detach().double()
    _close(x.grad, left @ sgn(weight.detach()).double())
    _close(weight.grad, _weight_gradient(left, values, weight))
    assert gain.grad is None
    assert norm.weight.grad is None


@KINDS
@FORMS
def test_products_in_front_of_norms_are_the_products(zero_one, gain, offset):
    words, _ = _draw(7, 33, zero_one, gain, offset)
    given, weights = torch.randn(2, 7, OUT), [_weight(33) for _ in range(2)]
    x = torch.randn(7, 33, requires_grad=True)

    def gradients(outs):
        norms = [nn.BatchNorm1d(OUT)(out) for out in outs]
        total = sum((norm * by).sum() for norm, by in zip(norms, given, strict=True))
        return torch.autograd.grad(total, [x, *weights])

    plain = [looked_up_linear(x, weight, words, UNIT) for weight in weights]
    joint = trained_products(x, torch.cat(weights), words, UNIT, parts=2)
    assert all(out.is_contiguous() for out in joint)
    torch.testing.assert_close(list(joint), plain)
    for found, expected in zip(gradients(joint), gradients(plain), strict=True):
        _close(found, expected)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("rows", [7, 40])
def test_activations_that_a_known_dropout_takes_count_as_0(rows, size):
    source = torch.randn(rows, size, requires_grad=True)
    x = nn.functional.dropout(source, 0.5)
    bits, entries = looked(torch.randn(4, size).requires_grad_()).train(), kept_entries(x)
    weight, given = (0.5 * torch.randn(OUT, size)).requires_grad_(), torch.randn(rows, OUT)
    # -1/2, 0 and +1/2, over the share that is kept.
    values = torch.where(x > 0, 0.5, -0.5).double() * entries.mask / 0.5
    found = bits(x, kept=entries)._replace(window=torch.tensor(1.0))
    out = looked_up_linear(x, weight, found, bits.unit)
    unit, signs = bits.unit.double(), sgn(weight.detach()).double()
    _close(out, unit * values @ signs.t())
    out.backward(given)
    _close(weight.grad, _weight_gradient(unit * given, values, weight))
    # What the layer hands to dropout, which multiplies by the mask and by 2.
    inner = unit * given.double() @ signs * (x.detach().abs() <= 1)
    _close(source.grad, inner * entries.mask * 2.0)
