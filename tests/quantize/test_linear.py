"""The binary linear map against Bi-GCN's printed formulas."""

import itertools

import pytest
import torch
from wrong_calls import check_wrong_calls

from bitgnn.quantize import binary_linear, sgn
from bitgnn.quantize.dropout import keep_words


def _operands(n=7, k=45, m=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = 1.5 * torch.randn(n, k, generator=generator)
    weight = 0.8 * torch.randn(m, k, generator=generator)
    grad = torch.randn(n, m, generator=generator)
    # The windows must matter for this to test them.
    assert (x.abs() > 1).any()
    assert (weight.abs() > 1).any()
    return x.requires_grad_(), weight.requires_grad_(), grad


@pytest.mark.parametrize(
    ("x_scale", "binary_weight", "dropout", "rule"),
    [*itertools.product((True, False), (True, False), (0.0, 0.4), ("bigcn",)),
     (True, True, 0.0, "ste")],
)  # fmt: skip
def test_forward_and_backward_follow_the_recipe(x_scale, binary_weight, dropout, rule):
    n, k = 40, 77
    x, weight, grad = _operands(n, k, 6)
    options = {"x_scale": x_scale, "binary_weight": binary_weight, "weight_gradient": rule}
    torch.manual_seed(5)
    out = binary_linear(x, weight, dropout=dropout, training=True, **options)
    out.backward(grad)
    torch.manual_seed(5)
    words, kept = keep_words(n, k, dropout, torch.empty(0))
    mask = (torch.ops.bitgnn.unpack(words, k) == 1) / kept
    assert (mask == 0).float().mean().item() == pytest.approx(dropout, abs=0.1)
    with torch.no_grad():
        alpha = x.abs().mean(1, keepdim=True) if x_scale else torch.ones(n, 1)
        m = weight.abs().mean(1, keepdim=True)
        x_hat = alpha * sgn(x) * mask
        used, through = (m * sgn(weight), sgn(weight)) if binary_weight else (weight, weight)
        assert torch.allclose(out, x_hat @ used.t(), rtol=1e-4, atol=1e-5)
        expected = (grad @ through) * mask * (x.abs() <= 1)
        assert torch.allclose(x.grad, expected, rtol=1e-4, atol=1e-5)
        d = grad.t() @ x_hat
        if binary_weight:
            shared = (sgn(weight) * d).sum(1, keepdim=True)
            d = m * (weight.abs() <= 1) * d + (sgn(weight) / k * shared if rule == "bigcn" else 0)
        assert torch.allclose(weight.grad, d, rtol=1e-3, atol=1e-4)
    still = binary_linear(x, weight, dropout=dropout, **options)
    assert torch.equal(still, binary_linear(x, weight, **options))


def test_identity_lets_every_gradient_pass():
    x, weight, grad = _operands()
    out = binary_linear(x, weight, x_scale=False, binary_weight=False, surrogate="identity")
    out.backward(grad)
    assert (x.abs() > 1).any()
    assert torch.allclose(x.grad, grad @ weight.detach(), rtol=1e-4, atol=1e-5)


def test_scaled_output_has_the_operator_rounding():
    x, weight, _ = _operands(n=30, k=200, m=20)
    scale = torch.ops.bitgnn.pack_scaled(weight.detach())[1]
    expected = torch.ops.bitgnn.bmm_fbf(x.detach(), torch.ops.bitgnn.pack(weight.detach()), scale)
    assert torch.equal(binary_linear(x, weight).detach(), expected)


@pytest.mark.parametrize(("sign_output", "signs"), [(True, 5), (2, 2)])
def test_signs_of_outputs_window_the_scaled_value(sign_output, signs):
    x, weight, grad = _operands()
    value = binary_linear(x, weight).detach()
    out = binary_linear(x, weight, sign_output=sign_output)
    assert torch.equal(out[:, :signs], sgn(value[:, :signs]))
    assert torch.equal(out[:, signs:], value[:, signs:])
    (found,) = torch.autograd.grad(out, weight, grad)
    grad[:, :signs] *= value[:, :signs].abs() <= 1
    (expected,) = torch.autograd.grad(binary_linear(x, weight), weight, grad)
    assert torch.allclose(found, expected)


def test_sign_output_of_a_zero_row_is_that_of_its_bits():
    # The row's scale is 0, so the scaled value is 0 everywhere; its bits are still all +1.
    weight = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
    out = binary_linear(torch.zeros(1, 2), weight, sign_output=True)
    assert out.tolist() == [[1.0, -1.0]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_dtypes_count_exactly(dtype):
    # Sums of signs beyond the integers of the dtype: rounded inside, they would be wrong.
    x, weight, _ = _operands(n=3, k=5001, m=4)
    x, weight = x.detach().to(dtype).requires_grad_(), weight.detach().to(dtype).requires_grad_()
    out = binary_linear(x, weight)
    assert out.dtype == dtype
    exact = binary_linear(x.float(), weight.float())
    assert torch.equal(out, exact.to(dtype))
    out.sum().backward()
    assert x.grad.dtype == weight.grad.dtype == dtype
    assert torch.isfinite(weight.grad).all()


def test_autocast_leaves_the_integers_alone():
    x, weight, _ = _operands(n=3, k=5001, m=4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for binary_weight in (True, False):
            found = binary_linear(x, weight, binary_weight=binary_weight)
            assert found.dtype == torch.float32
    assert torch.equal(binary_linear(x, weight, binary_weight=False), found)


@pytest.mark.parametrize(("n", "k", "m"), [(0, 5, 3), (4, 0, 3), (4, 5, 0), (1, 1, 1), (2, 33, 31)])
def test_empty_and_odd_sizes(n, k, m):
    x = torch.randn(n, k, requires_grad=True)
    weight = torch.randn(m, k, requires_grad=True)
    for dropout in (0.0, 0.5):
        out = binary_linear(x, weight, dropout=dropout, training=True)
        assert out.shape == (n, m)
        out.sum().backward()
        assert weight.grad.shape == (m, k)
        assert torch.isfinite(weight.grad).all()


def test_nan_counts_as_minus_one():
    x = torch.tensor([[float("nan"), 1.0, 1.0]])
    out = binary_linear(x, torch.ones(1, 3), x_scale=False, sign_output=False)
    assert out.item() == 1.0


WRONG = r"""
binary_linear(torch.ones(2, 3), torch.ones(4, 5))
    -> ValueError: x must be \[N, K\] .* got \[2, 3\] and \[4, 5\]
binary_linear(torch.ones(2, 3), torch.ones(4, 3), dropout=1.0) -> ValueError: dropout must be in
binary_linear(torch.ones(2, 3), torch.ones(4, 3), weight_gradient="soft")
    -> ValueError: weight_gradient must be one of .* got 'soft'
binary_linear(torch.ones(2, 3), torch.ones(4, 3), surrogate="soft")
    -> ValueError: surrogate must be one of .* got 'soft'
binary_linear(torch.ones(2, 3).long(), torch.ones(4, 3))
    -> TypeError: must hold floats, got torch\.int64
"""


def test_bad_arguments_are_named():
    check_wrong_calls(WRONG, globals())
