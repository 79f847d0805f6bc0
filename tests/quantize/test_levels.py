"""Levels, ternary and boolean values, shifted signs: values, gradients, bad input."""

import math

import pytest
import torch
from compilers import compiles_training
from torch import Tensor
from wrong_calls import check_wrong_calls

from bitgnn.nn import ActivationQuantizer
from bitgnn.quantize import boolean, levels, shifted_sign, ternary
from bitgnn.quantize.levels import LEAST_SCALE, Rounding, initial_scale, positive_scale, rounded

EDGES = [-math.inf, -2.0, -0.75, -0.5, -0.25, -0.0, 0.0, 0.25, 0.5, 0.75, 2.0, math.inf, math.nan]


def plain(x: Tensor, scale: Tensor, lowest: int, level: int, sign: bool) -> Tensor:
    """LSQ by autograd alone: rounding by a detached difference."""
    n = x.numel()
    factor = 1 / math.sqrt(n * level)
    s = scale * factor + (scale - scale * factor).detach()
    v = (x / s).clamp(lowest, level)
    q = torch.where(x >= 0, 1.0, -1.0) if sign else torch.floor(v + 0.5)
    return s * (v + (q - v).detach())


def test_ternary_is_half_open_and_takes_nan_for_0() -> None:
    x = torch.tensor(EDGES)
    # x / s >= 0.5 and x / s < -0.5 with s = 0.5, s = 1
    assert ternary(x, 0.5).div(0.5).tolist() == [-1, -1, -1, -1, 0, 0, 0, 1, 1, 1, 1, 1, 0]
    assert ternary(x, 1.0).tolist() == [-1, -1, -1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0]
    assert boolean(x, 1.0).tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0]


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("level", [1, 2, 3, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_levels_round_halves_up_and_clip(level: int, signed: bool, dtype: torch.dtype) -> None:
    x = torch.arange(-40, 41, dtype=dtype) / 4
    expected = [min(max(math.floor(v + 0.5), -level if signed else 0), level) for v in x.tolist()]
    assert levels(x, 1.0, level, signed).tolist() == expected
    x, scale = torch.randn(1000).to(dtype), torch.tensor(0.7301)
    out = levels(x, scale, level, signed)
    assert torch.equal(out, levels(x.float(), scale, level, signed).to(dtype))
    for x in (torch.randn(()), torch.randn(0), torch.randn(3, 0).mT, torch.randn(2, 33).mT):
        assert levels(x.to(dtype), 0.5, 2).shape == x.shape


def test_limits_are_compared_without_a_quotient() -> None:
    # 0.5f * s is exact; x / s may round up to 0.5 where x is the float below.
    scales = torch.rand(1000) + 0.1
    for s in scales[:200]:
        limit = 0.5 * s
        below = torch.nextafter(limit, torch.tensor(0.0))
        x = torch.stack([limit, below, -limit, torch.nextafter(-limit, torch.tensor(-9.0))])
        assert rounded(x, s, Rounding(-1, 1)).tolist() == [1, 0, 0, -1]


@pytest.mark.parametrize("kind", ["ternary", "bool", "sign"])
@pytest.mark.parametrize("level", [1, 2, 4])
def test_values_and_gradients_are_those_of_lsq(level: int, kind: str) -> None:
    torch.manual_seed(0)
    x, grad = (2 * torch.randn(50, 7)).requires_grad_(), torch.randn(50, 7)
    quantizer = ActivationQuantizer(kind, level)
    torch.nn.init.constant_(quantizer.scale, 0.83)
    if kind == "sign":
        level = 1
    lowest = 0 if kind == "bool" else -level
    s = torch.tensor(0.83, requires_grad=True)
    expected = plain(x, s, lowest, level, kind == "sign")
    wanted = torch.autograd.grad(expected, (x, s), grad)
    q, scale = quantizer(x)
    torch.testing.assert_close(scale * q, expected)
    found = torch.autograd.grad(scale * q, (x, quantizer.scale), grad)
    torch.testing.assert_close(found, wanted)
    assert found[1] != 0
    if kind != "sign":
        out = levels(x, s, level, kind == "ternary")
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(torch.autograd.grad(out, (x, s), grad), wanted)


def test_nan_and_infinity_pass_no_gradient() -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.3], requires_grad=True)
    s = torch.tensor(1.0, requires_grad=True)
    levels(x, s, 2).sum().backward()
    assert x.grad.tolist() == [0, 0, 0, 1]
    assert s.grad is not None
    assert s.grad.isfinite()


WRONG = r"""
ternary(torch.ones(2), 0.0) -> ValueError: scale must be positive and finite
ternary(torch.ones(2), -1.0) -> ValueError: scale must be positive and finite
levels(torch.ones(2), math.nan, 2) -> ValueError: scale must be positive and finite
boolean(torch.ones(2), math.inf) -> ValueError: scale must be positive and finite
boolean(torch.ones(2), torch.tensor(0.0)) -> ValueError: scale must be positive and finite
ternary(torch.ones(2, dtype=torch.int64), 1.0)
    -> TypeError: x must be a float tensor, got torch\.int64
ternary(torch.ones(2), "1") -> TypeError: scale must be a number or a 0-d tensor, got str
ternary(torch.ones(2), torch.ones(2)) -> ValueError: scale must be 0-d, got \[2\]
ternary(torch.ones(2), torch.ones((), device="meta"))
    -> ValueError: scale must be on cpu like x, got meta
levels(torch.ones(2), 1.0, 0) -> ValueError: level must be at least 1, got 0
levels(torch.ones(2), 1.0, 1.5) -> TypeError: level must be an integer, got float
shifted_sign(torch.ones(2, dtype=torch.int8)) -> TypeError: weight must be a float tensor
"""


def test_bad_arguments_are_named() -> None:
    check_wrong_calls(WRONG, globals())


def test_first_scale_is_twice_the_mean_magnitude() -> None:
    x = torch.tensor([[1.0, -2.0], [3.0, 0.0]])
    assert initial_scale(x) == 3.0
    assert initial_scale(x, level=4) == 1.5
    assert initial_scale(x, signed=False) == 2.0
    assert initial_scale(x, valid=torch.tensor([[True], [False]])) == 3.0
    assert initial_scale(x[:0]) == 0


def test_guard_keeps_scales_positive_and_lets_them_return() -> None:
    for value in (-0.5, 0.0, 2.0):
        quantizer = ActivationQuantizer()
        quantizer.initialize(torch.ones(2))
        torch.nn.init.constant_(quantizer.scale, value)
        guarded = max(value, torch.tensor(LEAST_SCALE).item())
        assert positive_scale(quantizer.scale) == guarded
        _, out = quantizer(torch.ones(4))
        assert out == guarded
        out.backward()
        assert quantizer.scale.grad == 0.5


@pytest.mark.parametrize("spread", [1.0, 0.0])
def test_shifted_sign(spread: float) -> None:
    torch.manual_seed(0)
    weight = (spread * torch.randn(40, 30) + 0.25).requires_grad_()
    signs, scale = shifted_sign(weight)
    centred = weight.detach() - weight.detach().mean()
    assert torch.equal(signs, torch.where(centred >= 0, 1.0, -1.0))
    torch.testing.assert_close(scale, centred.abs().mean())
    assert not scale.requires_grad
    grad = torch.randn(40, 30)
    ((scale + (spread == 0)) * signs * grad).sum().backward()
    # s_W sgn(W - mean) passes straight through to W - mean.
    torch.testing.assert_close(weight.grad, grad - grad.mean())
    assert shifted_sign(torch.empty(0, 4))[1] == 0


@compiles_training
def test_quantisers_compile_whole() -> None:
    def step(x: Tensor, s: Tensor, w: Tensor) -> Tensor:
        signs, scale = shifted_sign(w)
        return (scale * levels(x, s, 2) @ signs).sum()

    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    s = torch.tensor(0.5, requires_grad=True)
    grads = []
    for function in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        grads.append(torch.autograd.grad(function(x, s, w), (x, s, w)))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)
