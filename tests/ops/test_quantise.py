"""Rounding in training and its gradients: NaN and infinities, orders of memory, clear errors."""

import math

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn.ops.reference import OPERATORS
from bitgnn.quantize.levels import Rounding, clipped_gradients, rounded
from bitgnn.quantize.sign import shifted_sign

OPS = torch.ops.bitgnn
ONE = torch.tensor(1.0)
X = torch.ones(3, 4)


@pytest.mark.parametrize("highest", [1, 2, 7])
@pytest.mark.parametrize("lowest", ["signed", 0])
@pytest.mark.parametrize("scale", [1.0, 0.3, 1e-8, 1e30])
def test_hard_numbers(highest, lowest, scale, device):
    lowest = -highest if lowest == "signed" else 0
    steps = torch.arange(-9.0, 9.25, 0.25)
    hard = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-40, 3e38])
    x = torch.cat([steps, hard, steps * scale, torch.nextafter(steps * scale, ONE)])
    s, grad = torch.tensor(scale), torch.linspace(-1, 1, x.numel())
    expected = OPERATORS["round_levels"](x, s, lowest, highest)
    found = OPS.round_levels(x.to(device), s.to(device), lowest, highest).cpu()
    assert torch.equal(found, expected)
    assert found[x.isnan()].eq(0).all()
    gain = torch.tensor(0.37)
    for more in ((), (gain,), (gain, True)):
        wanted = OPERATORS["clip_gradients"](grad, x, s, lowest, highest, *more)
        there = (one.to(device) if isinstance(one, torch.Tensor) else one for one in more)
        given = OPS.clip_gradients(
            grad.to(device), x.to(device), s.to(device), lowest, highest, *there
        )
        for mine, theirs in zip(given, wanted, strict=True):
            torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("sign", [False, True])
@pytest.mark.parametrize(("lowest", "highest"), [(-1, 1), (0, 1), (-3, 3)])
def test_gradients_with_a_gain_are_those_of_lsq(lowest, highest, sign, device):
    generator = torch.Generator().manual_seed(4)
    x, grad = torch.randn(2, 500, generator=generator).double()
    s, gain = torch.tensor(0.43, dtype=torch.float64), torch.tensor(1.7)
    x.requires_grad_()
    s.requires_grad_()
    v = (x / s).clamp(lowest, highest)
    q = torch.where(x >= 0, 1.0, -1.0) if sign else torch.floor(x / s + 0.5).clamp(lowest, highest)
    (gain.double() * s * (v + (q - v).detach())).backward(grad)
    found = OPS.clip_gradients(
        *(one.detach().float().to(device) for one in (grad, x, s)),
        lowest,
        highest,
        gain.to(device),
        sign,
    )
    torch.testing.assert_close(found[0].cpu(), x.grad.float(), rtol=1e-6, atol=0)
    factor = 1 / math.sqrt(500 * highest)
    torch.testing.assert_close(found[1].cpu(), (factor * s.grad).float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 255, 4096, 8191, 8193, 200_001, 1_500_000])
def test_sums_of_many_values(count, device):
    generator = torch.Generator().manual_seed(count)
    x, grad = torch.randn(2, count, generator=generator)
    # One value in front takes the rest off the places that four at a time are read from.
    for first in (0, 1):
        a, b = x[first:], grad[first:]
        expected = OPERATORS["clip_gradients"](b, a, torch.tensor(0.7), -1, 1)
        found = OPS.clip_gradients(
            b.to(device), a.to(device), torch.tensor(0.7, device=device), -1, 1
        )
        torch.testing.assert_close(found[0].cpu(), expected[0], rtol=0, atol=0)
        torch.testing.assert_close(found[1].cpu(), expected[1], rtol=1e-6, atol=1e-7)
        again = OPS.clip_gradients(
            b.to(device), a.to(device), torch.tensor(0.7, device=device), -1, 1
        )
        assert torch.equal(found[1], again[1])
        signs, scale = OPS.shift_signs((a + 0.1).to(device))
        expected = OPERATORS["shift_signs"](a + 0.1)
        assert torch.equal(signs.cpu(), expected[0])
        assert torch.equal(scale.cpu(), expected[1])
        centred = OPS.centre_gradients((a + 0.1).to(device), torch.tensor(1.7, device=device))
        assert torch.equal(centred.cpu(), OPERATORS["centre_gradients"](a + 0.1, torch.tensor(1.7)))


@pytest.mark.parametrize("shape", [(0,), (5,), (3, 8), (0, 8), (4, 0), (2, 3, 7), (300, 1024)])
def test_scaled_sums_are_rounded_step_by_step(shape, device):
    generator = torch.Generator().manual_seed(5)
    sums = torch.randint(-999, 999, shape, generator=generator).float()
    bias = torch.randn(shape[-1], generator=generator)
    scales = torch.tensor(0.73), torch.tensor(0.0119)
    there = sums.to(device), *(scale.to(device) for scale in scales)
    product = (scales[0] * scales[1]) * sums
    assert torch.equal(OPS.scale_sums(*there).cpu(), product)
    assert torch.equal(OPS.scale_sums(*there, bias.to(device)).cpu(), product + bias)
    spread = torch.stack([bias, bias], -1)[:, 0].to(device)
    turned = there[0].flip(0).mT if len(shape) == 2 else there[0]
    if turned.size(-1) == spread.size(0):
        found = OPS.scale_sums(turned, *there[1:], spread)
        assert torch.equal(found, (there[1] * there[2]) * turned + spread)


def test_equal_weights_have_scale_0(device):
    signs, scale = OPS.shift_signs(torch.full((5, 7), 2.5, device=device))
    assert signs.eq(1).all()
    assert scale == 0
    weight = torch.full((5, 7), 2.5, device=device, requires_grad=True)
    shifted_sign(weight)[0][0, 0].backward()
    assert weight.grad is not None
    assert weight.grad.isfinite().all()


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (3, 1, 0, 2), (0, 1, 2, 3)])
def test_dimensions_keep_their_order_in_memory(order, device):
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(2, 5, 3, 4, generator=generator).to(device).permute(order)
    grad = torch.randn(x.shape, generator=generator).to(device)
    scale = torch.tensor(0.6, device=device)
    found = rounded(x, scale, Rounding(-2, 2))
    assert found.stride() == x.stride()
    assert torch.equal(found, OPERATORS["round_levels"](x.contiguous(), scale, -2, 2))
    passed, grad_scale = clipped_gradients(grad, x, scale, Rounding(-2, 2))
    expected = OPERATORS["clip_gradients"](grad, x.contiguous(), scale, -2, 2)
    assert torch.equal(passed, expected[0])
    torch.testing.assert_close(grad_scale, expected[1], rtol=1e-6, atol=1e-7)


def test_spread_values_are_taken_as_they_are(device):
    x = torch.randn(6, 1, generator=torch.Generator().manual_seed(3)).to(device).expand(6, 5)
    scale = torch.tensor(0.5, device=device)
    expected = OPERATORS["round_levels"](x, scale, -1, 1)
    assert torch.equal(rounded(x, scale, Rounding(-1, 1)), expected)
    every_other = torch.arange(20.0, device=device)[::2]
    assert torch.equal(
        rounded(every_other, scale, Rounding(-3, 3)),
        OPERATORS["round_levels"](every_other, scale, -3, 3),
    )


WRONG = r"""
OPS.round_levels(X.half(), ONE, -1, 1)
    -> RuntimeError|TypeError|ValueError: round_levels: x must .*[Ff]loat
OPS.round_levels(X, ONE.double(), -1, 1)
    -> RuntimeError|TypeError|ValueError: round_levels: scale must
OPS.round_levels(X, X[0], -1, 1) -> RuntimeError|TypeError|ValueError: round_levels: scale must .*0
OPS.round_levels(X, ONE, -1, 0)
    -> RuntimeError|TypeError|ValueError: round_levels: highest must be in
OPS.round_levels(X, ONE, 1, 1) -> RuntimeError|TypeError|ValueError: round_levels: lowest must be in
OPS.clip_gradients(X[:2], X, ONE, -1, 1)
    -> RuntimeError|TypeError|ValueError: clip_gradients: grad must have the shape of x
OPS.clip_gradients(X.int(), X, ONE, -1, 1)
    -> RuntimeError|TypeError|ValueError: clip_gradients: grad must .*[Ff]loat
OPS.clip_gradients(X, X, ONE, -1, 1, X[0])
    -> RuntimeError|TypeError|ValueError: clip_gradients: gain must .*0
OPS.centre_gradients(X.double(), ONE)
    -> RuntimeError|TypeError|ValueError: centre_gradients: grad must .*[Ff]loat
OPS.centre_gradients(X, X[0])
    -> RuntimeError|TypeError|ValueError: centre_gradients: factor must .*0
OPS.scale_sums(ONE, ONE, ONE)
    -> RuntimeError|TypeError|ValueError: scale_sums: sums must have a dimension
OPS.scale_sums(X, X[0], ONE) -> RuntimeError|TypeError|ValueError: scale_sums: scale must .*0
OPS.scale_sums(X, ONE, ONE.double())
    -> RuntimeError|TypeError|ValueError: scale_sums: weight_scale must .*[Ff]loat
OPS.scale_sums(X, ONE, ONE, X[:, 0])
    -> RuntimeError|TypeError|ValueError: scale_sums: entries of bias must be 4, got .*3
OPS.shift_signs(X.double())
    -> RuntimeError|TypeError|ValueError: shift_signs: weight must .*[Ff]loat
"""


def test_errors():
    check_wrong_calls(WRONG, globals())
