"""Bi-GCN's binary linear map with its forward and backward rules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitgnn.quantize.dropout import fast_dropout
from bitgnn.quantize.scale import canonical_row_scale
from bitgnn.quantize.sign import Surrogate, sgn, surrogate_slope

__all__ = ["binary_linear"]


class _BinaryLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        x_scale: bool,
        sign_output: bool,
        dropout: float,
        surrogate: Surrogate,
    ) -> Tensor:
        x_sign, w_sign = sgn(x), sgn(weight)
        x_kept = fast_dropout(x_sign, dropout)
        # The dot product of signs comes first: below 2^24 terms it is an exact integer, so that
        # the packed operators (which scale the same integer) reproduce this value bit for bit.
        dot = x_kept @ w_sign.t()
        w_mean = canonical_row_scale(weight)
        x_mean = canonical_row_scale(x) if x_scale else None
        scale = w_mean if x_mean is None else x_mean.unsqueeze(1) * w_mean
        scaled = scale * dot
        ctx.save_for_backward(x, weight, x_sign, x_kept, w_sign, x_mean, w_mean, scaled)
        ctx.sign_output, ctx.surrogate = sign_output, surrogate
        return sgn(dot) if sign_output else scaled

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, x_sign, x_kept, w_sign, x_mean, w_mean, scaled = ctx.saved_tensors
        if ctx.sign_output:
            grad = grad * surrogate_slope(scaled, ctx.surrogate)
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            # x_kept * x_sign is the dropout mask with its 1 / (1 - p).
            mask = x_kept * x_sign
            grad_x = (grad @ w_sign).mul_(mask).mul_(surrogate_slope(x, ctx.surrogate))
        if ctx.needs_input_grad[1]:
            scaled_grad = grad if x_mean is None else grad * x_mean.unsqueeze(1)
            d = scaled_grad.t() @ x_kept
            inside = (weight.abs() <= 1).to(weight.dtype)
            mean_part = (w_sign * d).sum(dim=1, keepdim=True) / weight.size(1)
            grad_weight = w_mean.unsqueeze(1) * inside * d + w_sign * mean_part
        return grad_x, grad_weight, None, None, None, None


def binary_linear(
    x: Tensor,
    weight: Tensor,
    *,
    x_scale: bool = True,
    sign_output: bool = False,
    dropout: float = 0.0,
    training: bool = False,
    surrogate: Surrogate = "ste",
) -> Tensor:
    r"""Product of binarised activations and weights, Bi-GCN's rule in both directions.

    Forward: :math:`Y = \hat X \hat W^\top` with :math:`\hat X_i = \alpha_i\,\mathrm{sgn}(X_i)`,
    :math:`\alpha_i = \mathrm{mean}|X_i|` and :math:`\hat W_o = m_o\,\mathrm{sgn}(W_o)`,
    :math:`m_o = \mathrm{mean}|W_o|`, evaluated as :math:`(\alpha_i m_o) \cdot dot`. Without
    ``x_scale``, :math:`\alpha = 1`. With ``sign_output`` the result is :math:`\mathrm{sgn}(dot)`
    and the surrogate's window is that of the scaled value.

    Backward, with :math:`G = \partial L / \partial Y` and :math:`D = G^\top \hat X`: activations
    get :math:`G\,\mathrm{sgn}(W) \cdot slope(x)`, weights get
    :math:`m_o 1[|W| \le 1] D + \mathrm{sgn}(W)/K \sum_k \mathrm{sgn}(W_{ok}) D_{ok}`.

    Source: Wang et al., "Bi-GCN: Binary Graph Convolutional Network", CVPR 2021.

    Args:
        x: ``[N, K]`` float activations (latent, or already +1/-1).
        weight: ``[M, K]`` float latent weights of the dtype of ``x``.
        x_scale: multiply by the row scale of ``x``.
        sign_output: return the sign of the product instead of the scaled product.
        dropout: probability with which a binarised activation is dropped in training.
        training: whether ``dropout`` acts.
        surrogate: slope in place of the sign's derivative, see
            :func:`~bitgnn.quantize.surrogate_slope`.

    Returns:
        ``[N, M]`` tensor of the dtype of ``x``.

    Raises:
        ValueError: the sizes of ``x`` and ``weight`` do not match or ``dropout`` is not in [0, 1).
    """
    if x.dim() != 2 or weight.dim() != 2 or x.size(1) != weight.size(1):
        raise ValueError(
            "binary_linear: x must be [N, K] and weight [M, K], "
            f"got {list(x.shape)} and {list(weight.shape)}"
        )
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"binary_linear: dropout must be in [0, 1), got {dropout}")
    active = dropout if training else 0.0
    out: Tensor = _BinaryLinear.apply(x, weight, x_scale, sign_output, active, surrogate)
    return out
