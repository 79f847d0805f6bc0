"""The binary linear map against Bi-GCN's printed formulas."""

import pytest
import torch

from bitgnn.quantize import binary_linear, sgn


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
