"""BWTA products against the same formulas of parts: values bit for bit, gradients, odd inputs."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.nn import BWTAAttention, BWTALinear
from bitgnn.quantize import shifted_sign


def plain_linear(layer: BWTALinear, x: Tensor) -> Tensor:
    q, scale = layer.input_quantizer(x)
    signs, weight_scale = shifted_sign(layer.weight)
    out = (scale * weight_scale) * functional.linear(q, signs)
    return (out if layer.bias is None else out + layer.bias.float()).to(x.dtype)


def plain_attention(
    layer: BWTAAttention, query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The output, and the weights that values are multiplied by."""
    q, q_scale = layer.query_quantizer(query)
    k, k_scale = layer.key_quantizer(key)
    v, v_scale = layer.value_quantizer(value)
    factor = 1.0 / math.sqrt(query.size(3))
    scores = (q_scale * k_scale * factor) * (q @ k.transpose(2, 3))
    hidden = torch.zeros_like(scores, dtype=torch.bool)
    if seen is not None:
        hidden = ~seen[:, None, None].expand_as(scores)
    shares = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
    p, p_scale = layer.probability_quantizer(shares.masked_fill(hidden, 0.0))
    p = functional.dropout(p, layer.dropout, layer.training)
    return ((p_scale * v_scale) * (p @ v)).to(query.dtype), p_scale * p


def check_gradients(
    got: Tensor, expected: Tensor, grad: Tensor, wanted: list[Tensor], rtol: float = 1e-5
) -> None:
    """Compare values bit for bit, and gradients."""
    assert torch.equal(got, expected)
    mine = torch.autograd.grad(got, wanted, grad)
    theirs = torch.autograd.grad(expected, wanted, grad)
    for one, other in zip(mine, theirs, strict=True):
        assert one.dtype == other.dtype
        size = float(other.abs().max()) if other.numel() else 0.0
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol * size)


def linear(kind: str, level: int = 1, **options: object) -> BWTALinear:
    torch.manual_seed(5)
    layer = BWTALinear(24, 9, activation=kind, level=level, **options)
    layer.input_quantizer.initialize(torch.randn(64, 24))
    return layer


@pytest.mark.parametrize("shape", [(24,), (6, 24), (2, 5, 24), (0, 24), (3, 0, 24)])
@pytest.mark.parametrize("kind", ["ternary", "bool", "sign"])
@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_linear_is_the_product_of_its_parts(
    kind: str, level: int, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    layer = linear(kind, level, dtype=dtype)
    rtol = max(1e-5, 4 * torch.finfo(dtype).eps)
    for scale in (float(layer.input_quantizer.scale.detach()), -0.25):  # one below zero comes back
        nn.init.constant_(layer.input_quantizer.scale, scale)
        x = torch.randn(shape, dtype=dtype, requires_grad=True)
        grad = torch.randn(*shape[:-1], 9, dtype=dtype)
        check_gradients(layer(x), plain_linear(layer, x), grad, [x, *layer.parameters()], rtol)


def test_first_scale_is_taken_once() -> None:
    layer, x = BWTALinear(8, 4), torch.randn(10, 8)
    scale = layer.input_quantizer.scale
    layer(x)
    torch.testing.assert_close(scale.detach(), 2 * x.abs().mean())
    kept = scale.item()
    layer(10 * x)
    assert scale.item() == kept
    layer.input_quantizer.initialize(10 * x)
    assert scale.item() == pytest.approx(10 * kept)


def test_autocast_around_everything() -> None:
    layer, core = linear("ternary"), attention("ternary", 1, 0.0)
    x = torch.randn(2, 5, 24, requires_grad=True)
    expected = plain_linear(layer, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x), expected)
        heads = x.unflatten(2, (3, 8)).transpose(1, 2)
        (layer(x).sum() + core(heads, heads, heads).sum()).backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float32


@pytest.mark.parametrize("case", ["(1, 2, 0)", "(2, 1, 0)", "expanded", "odd"])
def test_inputs_of_any_order_in_memory_and_odd_ones(case: str) -> None:
    layer = linear("ternary", bias=case == "odd")
    leaf, grad = torch.randn(24, 6, 4), torch.randn(9, 6, 4)
    if case == "odd":
        leaf, grad = torch.randn(4, 24), torch.randn(4, 9)
        leaf[0, :3] = torch.tensor([math.nan, math.inf, -math.inf])
    elif case == "expanded":
        leaf, grad = torch.randn(1, 24), torch.ones(()).expand(6, 9)
    x = leaf.requires_grad_()
    if case == "expanded":
        x = leaf.expand(6, 24)
    elif case != "odd":
        x, grad = (t.permute(eval(case)) for t in (leaf, grad))
    wanted = [leaf, *layer.parameters()]
    check_gradients(layer(x), plain_linear(layer, x), grad, wanted)
    layer(x).backward(grad)
    assert all(one.grad.isfinite().all() for one in wanted)
    assert case != "odd" or not leaf.grad[0, :3].any()


def test_equal_weights_learn_all_the_same() -> None:
    layer = linear("ternary")
    nn.init.constant_(layer.weight, 0.5)
    x, grad = torch.randn(6, 24), torch.randn(6, 9)
    layer(x).backward(grad)
    q, scale = layer.input_quantizer(x)
    expected = scale.detach() * (grad.t() @ q)
    torch.testing.assert_close(layer.weight.grad, expected - expected.mean())


def test_only_what_is_asked_for_gets_a_gradient() -> None:
    layer = linear("ternary")
    wanted = list(layer.parameters())
    for parameter in wanted:
        for other in wanted:
            other.grad = None
            other.requires_grad_(other is parameter)
        layer(torch.randn(3, 24)).sum().backward()
        assert [other.grad is not None for other in wanted] == [o is parameter for o in wanted]
    layer.requires_grad_(False)
    assert not layer(torch.randn(3, 24)).requires_grad
    x = torch.randn(3, 24, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert x.grad.any()


def attention(activation: str, level: int, dropout: float) -> BWTAAttention:
    layer = BWTAAttention(dropout, activation, level)
    layer(*(torch.randn(2, 3, 20, 8, generator=torch.Generator().manual_seed(2)) for _ in range(3)))
    return layer


@pytest.mark.parametrize("activation", ["ternary", "sign"])
@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("batch", [0, 2])
def test_attention_is_the_product_of_its_parts(
    activation: str, level: int, dropout: float, batch: int
) -> None:
    layer = attention(activation, level, dropout)
    torch.manual_seed(0)
    rows = [torch.randn(batch, n, 3 * 8, requires_grad=True) for n in (5, 7, 7)]
    heads = [x.unflatten(2, (3, 8)).transpose(1, 2) for x in rows]
    seen = torch.ones(batch, 7, dtype=torch.bool)
    seen[-1:, 4:] = False
    assert layer.attend(*heads).weights is None
    wanted = [*rows, *layer.parameters()]
    for mask, asks in itertools.product((None, seen), (False, True)):
        torch.manual_seed(1)
        got = layer.attend(*heads, mask, need_weights=True)
        torch.manual_seed(1)
        out, weights = plain_attention(layer, *heads, mask)
        assert torch.equal(got.weights, weights)
        if not asks:
            check_gradients(got.out, out, torch.randn(batch, 3, 5, 8), wanted)
            continue
        factors = torch.randn(batch, 3, 5, 7)
        loss = (got.weights * factors).sum() + got.out.square().sum()
        other = (weights * factors).sum() + out.square().sum()
        check_gradients(loss, other, torch.ones(()), wanted)


def test_odd_values_leave_gradients_finite() -> None:
    layer = attention("ternary", 1, 0.0)
    q, k, odd = (torch.randn(2, 3, 5, 8) for _ in range(3))
    odd[0, 0, 0, :3] = torch.tensor([math.nan, math.inf, -math.inf])
    odd.requires_grad_()
    layer(q, k, odd).square().sum().backward()
    assert odd.grad.isfinite().all()
    assert not odd.grad[0, 0, 0, :3].any()


def test_operands_of_full_precision_stand_beside_integers() -> None:
    layer = attention("ternary", 1, 0.0)
    layer.key_quantizer.level = None
    q, k, v = (torch.randn(2, 3, 5, 8, requires_grad=True) for _ in range(3))
    expected, _ = plain_attention(layer, q, k, v, None)
    got = layer(q, k, v)
    torch.testing.assert_close(got, expected)
    wanted = [q, k, v, layer.query_quantizer.scale, layer.value_quantizer.scale]
    found, sought = (torch.autograd.grad(out.sum(), wanted) for out in (got, expected))
    torch.testing.assert_close(found, sought, rtol=1e-4, atol=1e-5)


def test_functions_transform() -> None:
    layer = linear("ternary")
    x = torch.randn(6, 24)
    parameters = dict(layer.named_parameters())

    def loss(given: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(layer, given, (x,)).square().sum()

    found = torch.func.grad(loss)(parameters)
    loss(parameters).backward()
    for name, parameter in parameters.items():
        torch.testing.assert_close(found[name], parameter.grad)
