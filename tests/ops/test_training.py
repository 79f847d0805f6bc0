"""Operators of training: NaN and infinities, orders of memory, many values, looked-up products."""

import math

import pytest
import torch

from bitgnn.ops.reference import OPERATORS
from bitgnn.quantize.levels import Rounding, clipped_gradients, rounded
from bitgnn.quantize.sign import shifted_sign

OPS = torch.ops.bitgnn
LOOKED_UP = ("activation_bits", "fold_weight", "row_signs", "straight_through", "unpack_pair")
HARD = (math.nan, math.inf, -math.inf)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def both(name, device, *arguments):
    """Results of the operator on a device and of the reference, each as a tuple on the CPU."""
    moved = (a.to(device) if isinstance(a, torch.Tensor) else a for a in arguments)
    results = getattr(OPS, name)(*moved), OPERATORS[name](*arguments)
    return (tuple(r.cpu() for r in (found if isinstance(found, tuple) else (found,)))
            for found in results)  # fmt: skip


def assert_near(name, device, *arguments, atol=0.0):
    for mine, theirs in zip(*both(name, device, *arguments), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=atol, equal_nan=True)


@pytest.mark.parametrize("highest", [1, 2, 7])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("scale", [1.0, 0.3, 1e-8, 1e30])
def test_hard_numbers(highest, signed, scale, device):
    lowest = -highest if signed else 0
    steps = torch.arange(-9.0, 9.25, 0.25)
    hard = torch.tensor([*HARD, -0.0, 1e-40, 3e38])
    above = torch.nextafter(steps * scale, torch.tensor(1.0))
    x = torch.cat([steps, hard, steps * scale, above])
    s, grad, gain = torch.tensor(scale), torch.linspace(-1, 1, x.numel()), torch.tensor(0.37)
    (found,), (expected,) = both("round_levels", device, x, s, lowest, highest)
    assert torch.equal(found, expected)
    assert found[x.isnan()].eq(0).all()
    for more in ((), (gain,), (gain, True)):
        assert_near("clip_gradients", device, grad, x, s, lowest, highest, *more)


@pytest.mark.parametrize("sign", [False, True])
@pytest.mark.parametrize(("lowest", "highest"), [(-1, 1), (0, 1), (-3, 3)])
def test_gradients_with_a_gain_are_those_of_lsq(lowest, highest, sign, device):
    x, grad = torch.randn(2, 500).double()
    s, gain = torch.tensor(0.43, dtype=torch.float64), torch.tensor(1.7)
    x.requires_grad_()
    s.requires_grad_()
    v = (x / s).clamp(lowest, highest)
    q = torch.where(x >= 0, 1.0, -1.0) if sign else torch.floor(x / s + 0.5).clamp(lowest, highest)
    (gain.double() * s * (v + (q - v).detach())).backward(grad)
    given = (one.detach().float().to(device) for one in (grad, x, s))
    found = OPS.clip_gradients(*given, lowest, highest, gain.to(device), sign)
    torch.testing.assert_close(found[0].cpu(), x.grad.float(), rtol=1e-6, atol=0)
    expected = (s.grad / math.sqrt(500 * highest)).float()
    torch.testing.assert_close(found[1].cpu(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 255, 4096, 8191, 8193, 200_001, 1_500_000])
def test_sums_of_many_values(count, device):
    x, grad = torch.randn(2, count)
    # One value in front takes the rest off the places that four at a time are read from.
    for first in (0, 1):
        a, b, scale = x[first:], grad[first:], torch.tensor(0.7)
        assert_near("clip_gradients", device, b, a, scale, -1, 1, atol=1e-7)
        found, expected = both("clip_gradients", device, b, a, scale, -1, 1)
        again, _ = both("clip_gradients", device, b, a, scale, -1, 1)
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], again[1])
        for name, more in (("shift_signs", ()), ("centre_gradients", (torch.tensor(1.7),))):
            found, expected = both(name, device, a + 0.1, *more)
            assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("shape", [(0,), (5,), (3, 8), (0, 8), (4, 0), (2, 3, 7), (300, 1024)])
def test_scaled_sums_are_rounded_step_by_step(shape, device):
    sums, bias = torch.randint(-999, 999, shape).float(), torch.randn(shape[-1])
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
    weight = torch.full((5, 7), 2.5, device=device, requires_grad=True)
    signs, scale = OPS.shift_signs(weight.detach())
    assert signs.eq(1).all()
    assert scale == 0
    shifted_sign(weight)[0][0, 0].backward()
    assert weight.grad.isfinite().all()


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (3, 1, 0, 2), (0, 1, 2, 3)])
def test_dimensions_keep_their_order_in_memory(order, device):
    x = torch.randn(2, 5, 3, 4).to(device).permute(order)
    grad, scale = torch.randn(x.shape).to(device), torch.tensor(0.6, device=device)
    found = rounded(x, scale, Rounding(-2, 2))
    assert found.stride() == x.stride()
    assert torch.equal(found, OPERATORS["round_levels"](x.contiguous(), scale, -2, 2))
    passed, grad_scale = clipped_gradients(grad, x, scale, Rounding(-2, 2))
    expected = OPERATORS["clip_gradients"](grad, x.contiguous(), scale, -2, 2)
    assert torch.equal(passed, expected[0])
    torch.testing.assert_close(grad_scale, expected[1], rtol=1e-6, atol=1e-7)
    # Values that are spread out or repeated are taken as they are.
    for spread in (torch.randn(6, 1).to(device).expand(6, 5), x.flatten()[::2]):
        expected = OPERATORS["round_levels"](spread, scale, -3, 3)
        assert torch.equal(rounded(spread, scale, Rounding(-3, 3)), expected)


@pytest.mark.parametrize("name", LOOKED_UP)
@pytest.mark.parametrize(("rows", "size"), [(1, 3000), (20_011, 33), (30_000, 7)])
def test_many_looked_up_values(name, rows, size, device, sampler, assert_kernel_equals_reference):
    arguments = sampler(seed=rows).arguments(name, rows, size, rows, True)
    assert_kernel_equals_reference(name, arguments, device)


@pytest.mark.parametrize("bad", HARD)
def test_rows_that_are_not_finite_are_told(bad, device):
    x = torch.randn(6, 70)
    x[2, 69] = bad
    told = OPS.activation_bits(x.to(device), 0.0, 1.0)[1].cpu()
    assert told.isnan().nonzero().view(-1).tolist() == [2]
    assert told.nan_to_num().eq(0).all()
    signs = OPS.row_signs(torch.ones(6, 70, device=device), x.sum(1).to(device)).cpu()
    assert signs.isnan().all(1).nonzero().view(-1).tolist() == [2]
    assert signs.nan_to_num(1.0).eq(1).all()


def test_values_on_the_edges(device):
    x = torch.tensor([[-0.0, 0.0, 0.5, -0.5, math.nan, torch.finfo().max]], device=device)
    half = torch.tensor(0.5, device=device)
    assert OPS.row_signs(x, torch.zeros(1, device=device)).tolist() == [[1, 1, 1, -1, -1, 1]]
    passed = OPS.straight_through(torch.ones_like(x), x, 3.0, half)
    assert passed.tolist() == [[3, 3, 3, 3, 0, 0]]
    words, _, norm = OPS.activation_bits(x[:, :4].contiguous(), 0.5, 2.0)
    assert words.tolist() == [[4]]
    assert float(norm) == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("every", [1, 3, 10**12])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (31, 33), (513, 7), (130, 300), (70_000, 3)])
def test_merged_columns(rows, cols, every, device):
    x = torch.randn(rows, 2 * cols) * 3 + 1e4 * torch.randn(2 * cols)
    x[:, 0] = 5.0
    held = torch.randn(cols), torch.rand(cols), torch.rand(cols), torch.rand(()), torch.tensor(40.0)
    for part in (x[:, :cols], x[:, ::2], x[:, cols:].contiguous().sub(1e4)):
        for due in (None, torch.tensor(1.0)):
            assert_near("merge_columns", device, part, every, 100.0, *held, due, atol=1e-6)
    first = (*held[:4], torch.tensor(0.0))
    assert_near("merge_columns", device, x[:, :cols], every, 2.0, *first, atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 6), (0, 6), (5, 0)])
@pytest.mark.parametrize("bad", [*HARD, 1e30])
def test_columns_stay_as_they_were(shape, bad, device):
    x, cols = torch.randn(shape), shape[1]
    held = torch.randn(cols), torch.rand(cols), torch.rand(cols), torch.rand(()), torch.tensor(40.0)
    options = x.to(device), 1, 100.0, *(h.to(device) for h in held)
    not_due = torch.tensor(0.0, device=device)
    if x.numel():
        x[3, 5] = bad
        options = x.to(device), *options[1:]
    for due, is_finite in ((None, 1.0 - bool(x.numel())), (not_due, 1.0)):
        *found, told = OPS.merge_columns(*options, due)
        assert all(torch.equal(f.cpu(), h) for f, h in zip(found, held, strict=True))
        assert float(told) == is_finite


def test_columns_refuse(device):
    one, x = torch.ones((), device=device), torch.zeros(4, 3, device=device)
    held = [torch.zeros(3, device=device)] * 3
    with pytest.raises(RuntimeError, match="every must be at least 1, got 0"):
        OPS.merge_columns(x, 0, 100.0, *held, one, one)
    with pytest.raises(RuntimeError, match="memory must be at least 1"):
        OPS.merge_columns(x, 1, math.nan, *held, one, one)
    with pytest.raises(RuntimeError, match="mean"):
        OPS.merge_columns(x, 1, 100.0, held[0][:2], *held[1:], one, one)
