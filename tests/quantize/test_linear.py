"""The binary linear map against Bi-GCN's printed formulas."""

import pytest
import torch

from bitgnn.quantize import binary_linear, sgn
from bitgnn.quantize.dropout import keep_words


def _operands(n=7, k=45, m=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = 1.5 * torch.randn(n, k, generator=generator)
    weight = 0.8 * torch.randn(m, k, generator=generator)
    grad = torch.randn(n, m, generator=generator)
    return x.requires_grad_(), weight.requires_grad_(), grad


@pytest.mark.parametrize("x_scale", [True, False])
def test_forward_and_backward_follow_the_recipe(x_scale):
    x, weight, grad = _operands()
    out = binary_linear(x, weight, x_scale=x_scale)
    out.backward(grad)

    with torch.no_grad():
        alpha = x.abs().mean(1, keepdim=True) if x_scale else torch.ones(7, 1)
        m = weight.abs().mean(1, keepdim=True)
        x_hat = alpha * sgn(x)
        assert torch.allclose(out, x_hat @ (m * sgn(weight)).t(), rtol=1e-5, atol=1e-6)
        d = grad.t() @ x_hat
        shared = (sgn(weight) * d).sum(1, keepdim=True)
        expected = m * (weight.abs() <= 1) * d + sgn(weight) / 45 * shared
        assert torch.allclose(weight.grad, expected, rtol=1e-4, atol=1e-6)
        assert torch.allclose(x.grad, (grad @ sgn(weight)) * (x.abs() <= 1), rtol=1e-5)
        # The windows must matter for this to test them.
        assert (x.abs() > 1).any()
        assert (weight.abs() > 1).any()


def test_scaled_output_has_the_operator_rounding():
    x, weight, _ = _operands(n=30, k=200, m=20)
    scale = torch.ops.bitgnn.pack_scaled(weight.detach())[1]
    expected = torch.ops.bitgnn.bmm_fbf(x.detach(), torch.ops.bitgnn.pack(weight.detach()), scale)
    assert torch.equal(binary_linear(x, weight).detach(), expected)


def test_sign_output_windows_the_scaled_value():
    x, weight, grad = _operands()
    value = binary_linear(x, weight).detach()
    out = binary_linear(x, weight, sign_output=True)
    assert torch.equal(out.detach(), sgn(value))
    out.backward(grad)
    found = weight.grad.clone()
    weight.grad = None
    binary_linear(x, weight).backward(grad * (value.abs() <= 1))
    assert torch.equal(found, weight.grad)


def test_sign_output_of_a_zero_row_is_that_of_its_bits():
    # The row's scale is 0, so the scaled value is 0 everywhere; its bits are still all +1.
    weight = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
    out = binary_linear(torch.zeros(1, 2), weight, sign_output=True)
    assert out.tolist() == [[1.0, -1.0]]


def test_dropout_masks_forward_and_backward_alike():
    torch.manual_seed(0)
    x = torch.full((4, 64), 0.5, requires_grad=True)
    weight = torch.eye(64) * 2 - 1
    weight.requires_grad_()
    out = binary_linear(x, weight, dropout=0.5, training=True, x_scale=False)
    out.sum().backward()
    dropped = (x.grad == 0).float().mean().item()
    assert 0.35 < dropped < 0.65
    still = binary_linear(x, weight, dropout=0.5, training=False, x_scale=False)
    assert torch.equal(still, binary_linear(x, weight, x_scale=False))


def test_bad_shapes_are_named():
    with pytest.raises(ValueError, match=r"x must be \[N, K\] .* got \[2, 3\] and \[4, 5\]"):
        binary_linear(torch.ones(2, 3), torch.ones(4, 5))
    with pytest.raises(ValueError, match="dropout must be in"):
        binary_linear(torch.ones(2, 3), torch.ones(4, 3), dropout=1.0)


@pytest.mark.parametrize("x_scale", [True, False])
def test_float_weights_keep_their_values(x_scale):
    x, weight, grad = _operands()
    out = binary_linear(x, weight, x_scale=x_scale, binary_weight=False)
    out.backward(grad)
    with torch.no_grad():
        alpha = x.abs().mean(1, keepdim=True) if x_scale else torch.ones(7, 1)
        assert torch.allclose(out, alpha * sgn(x) @ weight.t(), rtol=1e-5, atol=1e-5)
        assert torch.allclose(weight.grad, grad.t() @ (alpha * sgn(x)), rtol=1e-4, atol=1e-5)
        expected = (grad @ weight) * (x.abs() <= 1)
        assert torch.allclose(x.grad, expected, rtol=1e-4, atol=1e-5)


def test_plain_straight_through_is_the_first_term_of_the_rule():
    x, weight, grad = _operands()
    binary_linear(x, weight, weight_gradient="ste").backward(grad)
    with torch.no_grad():
        d = grad.t() @ (x.abs().mean(1, keepdim=True) * sgn(x))
        m = weight.abs().mean(1, keepdim=True)
        assert torch.allclose(weight.grad, m * (weight.abs() <= 1) * d, rtol=1e-4, atol=1e-6)


def test_some_outputs_may_be_signs():
    x, weight, grad = _operands()
    out = binary_linear(x, weight, sign_output=2)
    value = binary_linear(x, weight).detach()
    assert torch.equal(out[:, :2], sgn(value[:, :2]))
    assert torch.equal(out[:, 2:], value[:, 2:])
    out.backward(grad)
    found = weight.grad.clone()
    weight.grad = None
    windowed = torch.cat([grad[:, :2] * (value[:, :2].abs() <= 1), grad[:, 2:]], dim=1)
    binary_linear(x, weight).backward(windowed)
    assert torch.allclose(found, weight.grad)


@pytest.mark.parametrize("binary_weight", [True, False])
def test_dropout_is_that_of_the_signs_in_both_directions(binary_weight):
    x, weight, grad = _operands(n=40, k=77, m=6)
    torch.manual_seed(5)
    out = binary_linear(x, weight, dropout=0.4, training=True, binary_weight=binary_weight)
    out.backward(grad)
    torch.manual_seed(5)
    words, kept = keep_words(40, 77, 0.4, torch.empty(0))
    mask = (torch.ops.bitgnn.unpack(words, 77) == 1) / kept
    assert 0.3 < (mask == 0).float().mean() < 0.5
    with torch.no_grad():
        used = weight.abs().mean(1, keepdim=True) * sgn(weight) if binary_weight else weight
        x_hat = x.abs().mean(1, keepdim=True) * sgn(x) * mask
        assert torch.allclose(out, x_hat @ used.t(), rtol=1e-4, atol=1e-5)
        through = sgn(weight) if binary_weight else weight
        expected = (grad @ through) * mask * (x.abs() <= 1)
        assert torch.allclose(x.grad, expected, rtol=1e-4, atol=1e-5)
        d = grad.t() @ x_hat
        if binary_weight:
            m = weight.abs().mean(1, keepdim=True)
            shared = (sgn(weight) * d).sum(1, keepdim=True)
            d = m * (weight.abs() <= 1) * d + sgn(weight) / 77 * shared
        assert torch.allclose(weight.grad, d, rtol=1e-3, atol=1e-4)


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


def test_unknown_options_and_integers_are_refused():
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"weight_gradient must be one of .* got 'soft'"):
        binary_linear(x, torch.ones(4, 3), weight_gradient="soft")
    with pytest.raises(ValueError, match=r"surrogate must be one of .* got 'soft'"):
        binary_linear(x, torch.ones(4, 3), surrogate="soft")
    with pytest.raises(TypeError, match=r"must hold floats, got torch\.int64"):
        binary_linear(x.long(), torch.ones(4, 3))
