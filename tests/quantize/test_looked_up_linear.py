"""Products of looked-up bits with binary weights: the stated formula, and the stated gradients."""

import itertools

import pytest
import torch
from torch import nn

from bitgnn.nn import InputBits
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


def _draw(rows, size, zero_one, gain=False, offset=False):
    """Random bits, packed, and the doubles that they stand for."""
    bits = torch.rand(rows, size) < 0.4
    words = torch.ops.bitgnn.pack(torch.where(bits, 1.0, -1.0))
    values = bits.double() if zero_one else bits.double() * 2 - 1
    offset = (torch.rand(size) * 2**16).round() / 2**16 - 0.5 if offset else None
    values = values * (GAIN if gain else 1.0) + (0.0 if offset is None else offset.double())
    gain = torch.tensor(GAIN) if gain else None
    return InputWords(words, size, zero_one, gain, offset, unit=UNIT), values


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
    out = looked_up_linear(x, weight, words)
    assert (out.dtype, out.shape) == (torch.float32, (rows, OUT))
    _close(out, plain)
    out.backward(given)
    _close(weight.grad, _weight_gradient(UNIT.double() * given, values, weight))
    factor, norm = torch.tensor([0.7]), _norm()
    _close(looked_up_linear(x, weight, words, factor), plain * factor.double())
    found = looked_up_linear(x, weight, words, None, norm)
    _close(found, norm.double()(plain))


@KINDS
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "not affine"])
def test_scale_and_shift_are_those_of_the_product(zero_one, affine):
    words, _ = _draw(7, 33, zero_one, offset=True)
    weight, gain, norm = _weight(33), torch.tensor([-0.4]), _norm(affine)
    scale, shift = output_affine(weight, UNIT, zero_one, words.offset, gain, norm)
    bits = torch.ops.bitgnn.unpack(words.words, 33)
    expected = looked_up_linear(torch.zeros(7, 33), weight, words, gain, norm)
    torch.testing.assert_close(scale * (bits @ sgn(weight).t()) + shift, expected.detach())
    assert not scale.requires_grad
    assert scale.is_contiguous()


@KINDS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_result_has_the_dtype_of_the_input(zero_one, dtype):
    words, values = _draw(7, 33, zero_one, True, True)
    x = torch.randn(7, 33, dtype=dtype, requires_grad=True)
    held = _weight(33).detach().to(dtype).requires_grad_()
    out = looked_up_linear(x, held, words)
    _close(out, UNIT.double() * values @ sgn(held).double().t(), 1e-2)
    out.sum().backward()
    assert (out.dtype, x.grad.dtype, held.grad.dtype) == (dtype, dtype, dtype)


def test_autocast_changes_nothing():
    words, _ = _draw(7, 33, True, offset=True)
    x, weight = torch.randn(7, 33), _weight(33)
    expected = looked_up_linear(x, weight, words)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(looked_up_linear(x, weight, words), expected)


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
    looked_up_linear(x, weight, words._replace(window=half)).backward(given)
    expected = UNIT.double() * (GAIN if gain else 1.0) * given.double() @ sgn(weight).double()
    _close(x.grad, expected if window is None else expected * (x.detach().abs() <= window))
    assert weight.grad is None
    assert not looked_up_linear(x.detach(), weight, words).requires_grad


@KINDS
def test_gain_and_norm_count_as_constants(zero_one):
    words, values = _draw(7, 33, zero_one, offset=True)
    weight, norm, gain = _weight(33), _norm(), torch.tensor([0.7], requires_grad=True)
    x, given = torch.randn(7, 33, requires_grad=True), torch.randn(7, OUT)
    looked_up_linear(x, weight, words, gain, norm).backward(given)
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

    plain = [looked_up_linear(x, weight, words) for weight in weights]
    joint = trained_products(x, torch.cat(weights), words, parts=2)
    assert all(out.is_contiguous() for out in joint)
    torch.testing.assert_close(list(joint), plain)
    for found, expected in zip(gradients(joint), gradients(plain), strict=True):
        _close(found, expected)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("rows", [7, 40])
def test_activations_that_a_layers_dropout_takes_count_as_0(rows, size):
    x, weight = torch.randn(rows, size, requires_grad=True), _weight(size)
    bits = InputBits("Layer", size)
    bits.set_reads(True)
    found = bits(x, 0.5)._replace(window=torch.tensor(1.0))
    low, high = (torch.ops.bitgnn.unpack(words, size) for words in (found.words, found.raised))
    keep, given = low == high, torch.randn(rows, OUT)
    assert torch.equal(low[keep], sgn(x.detach())[keep])
    # -1/2, 0 and +1/2, over the share that is kept.
    values = torch.where(x > 0, 0.5, -0.5).double() * keep / 0.5
    out = looked_up_linear(x, weight, found)
    unit, signs = bits.unit.double(), sgn(weight.detach()).double()
    _close(out, unit * values @ signs.t())
    out.backward(given)
    _close(weight.grad, _weight_gradient(unit * given, values, weight))
    # On average over what dropout takes.
    _close(x.grad, unit * given.double() @ signs * (x.detach().abs() <= 1))
