"""BWTALinear and its quantiser: values, gradients, scales, bad input."""

import math

import pytest
import torch
from torch.nn import functional

from bitgnn.nn import ActivationQuantizer, BWTALinear
from bitgnn.quantize import boolean, shifted_sign, ternary


def trained(in_features: int = 33, out_features: int = 7, **options: object) -> BWTALinear:
    torch.manual_seed(1)
    layer = BWTALinear(in_features, out_features, **options)
    layer(torch.randn(64, in_features))
    return layer


def test_forward_is_the_formula() -> None:
    layer = trained()
    x = torch.randn(5, 33)
    s = layer.input_quantizer.scale.detach()
    signs, weight_scale = shifted_sign(layer.weight.detach())
    dot = (ternary(x, s) / s).round() @ signs.t()
    expected = (s * weight_scale) * dot + layer.bias
    assert torch.equal(layer(x), expected)
    assert set(dot.unique().tolist()) <= set(range(-33, 34))


def test_first_scale_is_taken_in_training_alone() -> None:
    layer = BWTALinear(8, 4)
    x = torch.randn(10, 8)
    with pytest.raises(ValueError, match="the scale is not set"):
        layer.eval()(x)
    layer.train()(x)
    torch.testing.assert_close(layer.input_quantizer.scale.detach(), 2 * x.abs().mean())
    kept = float(layer.input_quantizer.scale)
    layer(10 * x)
    assert float(layer.input_quantizer.scale) == kept
    layer.input_quantizer.initialize(10 * x)
    assert float(layer.input_quantizer.scale) == pytest.approx(10 * kept)


@pytest.mark.parametrize("activation", ["ternary", "bool", "sign"])
def test_gradients_are_those_of_the_parts(activation: str) -> None:
    layer = trained(12, 5, activation=activation)
    x = torch.randn(6, 12)
    grad = torch.randn(6, 5)
    a = x.clone().requires_grad_()
    layer(a).backward(grad)
    b = x.clone().requires_grad_()
    scale = layer.input_quantizer.scale.detach().clone().requires_grad_()
    weight = layer.weight.detach().clone().requires_grad_()
    signs, weight_scale = shifted_sign(weight)
    if activation == "sign":
        v = (b / scale).clamp(-1, 1)
        factor = 1 / math.sqrt(b.numel())
        s = scale * factor + (scale - scale * factor).detach()
        v = (b / s).clamp(-1, 1)
        q = s * (v + (torch.where(b >= 0, 1.0, -1.0) - v).detach())
    else:
        q = ternary(b, scale) if activation == "ternary" else boolean(b, scale)
    functional.linear(q, weight_scale * signs).backward(grad)
    torch.testing.assert_close(a.grad, b.grad)
    torch.testing.assert_close(layer.weight.grad, weight.grad)
    torch.testing.assert_close(layer.input_quantizer.scale.grad, scale.grad)
    torch.testing.assert_close(layer.bias.grad, grad.sum(0))


def test_errors_name_the_argument() -> None:
    layer = trained()
    with pytest.raises(ValueError, match=r"input must be \[\*, 33\], got \[2, 32\]"):
        layer(torch.randn(2, 32))
    with pytest.raises(TypeError, match=r"input must hold floats, got torch\.int64"):
        layer(torch.ones(2, 33, dtype=torch.int64))
    with pytest.raises(ValueError, match="kind must be one of"):
        BWTALinear(3, 3, activation="int8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="level must be at least 1"):
        layer.level = 0
    with pytest.raises(TypeError, match="level must be an integer"):
        layer.level = 1.0  # type: ignore[assignment]
    fresh = BWTALinear(3, 3)
    with pytest.raises(ValueError, match="x must be finite"):
        fresh(torch.full((1, 3), math.nan))
    with pytest.raises(ValueError, match="other than 0"):
        fresh.input_quantizer.initialize(torch.zeros(4))


def test_frozen_scale_needs_level_one() -> None:
    quantizer = ActivationQuantizer(level=3)
    quantizer.initialize(torch.randn(10))
    with pytest.raises(ValueError, match="must have level 1, got 3"):
        quantizer.frozen_scale("layer")
    with pytest.raises(ValueError, match="never set"):
        ActivationQuantizer().frozen_scale("layer")
