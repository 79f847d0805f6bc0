"""Bi-GCN's binary linear map with its forward and backward rules, forward on packed bits."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, get_args

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.quantize.dropout import all_words, keep_words, unpacked
from bitgnn.quantize.first_order import first_order
from bitgnn.quantize.sign import Surrogate, sgn, surrogate_slope

WeightGradient = Literal["bigcn", "ste"]
"""Gradient rules for binary weights, see :func:`binary_linear`."""


class _BinaryLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, weight, x_scale, binary_weight, sign_output, dropout, *rules = given
        words, x_mean = torch.ops.bitgnn.pack_scaled(x)
        size, raised, gain = x.size(1), None, 1.0
        if dropout > 0.0:
            kept, probability = keep_words(words.size(0), size, dropout, words)
            dropped = kept ^ all_words(size, words)
            words, raised, gain = words & kept, words | dropped, 0.5 / probability
        x_mean = x_mean if x_scale else None
        w_mean = None
        if binary_weight:
            w_words, w_mean = torch.ops.bitgnn.pack_scaled(weight)
            dot = torch.ops.bitgnn.bmm_bbf(words, w_words, size)
            if raised is not None:
                dot.add_(torch.ops.bitgnn.bmm_bbf(raised, w_words, size))
        else:
            dot = unpacked(words, raised, size) @ weight.float().t()
        if gain != 1.0:
            dot = dot.mul_(gain)
        out = _scaled(dot, x_mean, w_mean)
        if sign_output:
            dot = dot[:, :sign_output].contiguous()
            out[:, :sign_output] = sgn(dot)
        ctx.save_for_backward(
            x if ctx.needs_input_grad[0] else None, weight, words, raised, x_mean, w_mean,
            dot if sign_output else None,
        )  # fmt: skip
        ctx.size, ctx.gain = size, gain
        ctx.binary_weight, ctx.sign_output = binary_weight, sign_output
        ctx.surrogate, ctx.weight_gradient = rules
        return out.to(x.dtype)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, words, raised, x_mean, w_mean, dot = ctx.saved_tensors
        grad = grad.float()
        if dot is not None:
            held = None if w_mean is None else w_mean[: ctx.sign_output]
            slope = surrogate_slope(_scaled(dot, x_mean, held), ctx.surrogate)
            grad = torch.cat([grad[:, : ctx.sign_output] * slope, grad[:, ctx.sign_output :]], 1)
        w_used = sgn(weight).float() if ctx.binary_weight else weight.float()
        x_used = unpacked(words, raised, ctx.size)
        grad_x = grad_weight = None
        if x is not None:
            grad_x = (grad @ w_used).mul_(surrogate_slope(x, ctx.surrogate))
            if raised is not None:
                grad_x.mul_(x_used.abs()).mul_(ctx.gain)
            grad_x = grad_x.to(x.dtype)
        if ctx.needs_input_grad[1]:
            d = (grad if x_mean is None else grad * x_mean.unsqueeze(1)).t() @ x_used
            if ctx.gain != 1.0:
                d = d.mul_(ctx.gain)
            if ctx.binary_weight:
                through_sign = weight.abs().le_(1).float().mul_(w_mean.unsqueeze(1)).mul_(d)
                if ctx.weight_gradient == "bigcn":
                    shared = (w_used * d).sum(dim=1, keepdim=True) / max(weight.size(1), 1)
                    through_sign.addcmul_(w_used, shared)
                d = through_sign
            grad_weight = d.to(weight.dtype)
        return grad_x, grad_weight, *[None] * 6


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Context without autocast, which would round exact sums."""
    device = x.device.type
    is_on = torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if is_on else nullcontext()


def _scaled(dot: Tensor, x_mean: Tensor | None, w_mean: Tensor | None) -> Tensor:
    """``(x_mean[i] * w_mean[o]) * dot`` in the order in which the operators multiply."""
    if x_mean is not None and w_mean is not None:
        return (x_mean.unsqueeze(1) * w_mean) * dot
    if x_mean is not None:
        return x_mean.unsqueeze(1) * dot
    return dot.clone() if w_mean is None else w_mean * dot


def binary_linear(
    x: Tensor,
    weight: Tensor,
    *,
    x_scale: bool = True,
    binary_weight: bool = True,
    sign_output: bool | int = False,
    dropout: float = 0.0,
    training: bool = False,
    surrogate: Surrogate = "ste",
    weight_gradient: WeightGradient = "bigcn",
) -> Tensor:
    r"""Product of binarised activations and weights, Bi-GCN's rule in both directions.

    Forward: :math:`Y = \hat X \hat W^\top` with :math:`\hat X_i = \alpha_i\,\mathrm{sgn}(X_i)`,
    :math:`\alpha_i = \mathrm{mean}|X_i|` and :math:`\hat W_o = m_o\,\mathrm{sgn}(W_o)`,
    :math:`m_o = \mathrm{mean}|W_o|`, evaluated as :math:`(\alpha_i m_o) \cdot dot` in float32 by
    the packed operators themselves. Without ``x_scale``, :math:`\alpha = 1`; without
    ``binary_weight``, :math:`\hat W = W`. An output that is a sign is :math:`\mathrm{sgn}(dot)`,
    and its surrogate's window is that of the scaled value.

    Backward, with :math:`G = \partial L / \partial Y` and :math:`D = G^\top \hat X`: activations
    get :math:`G\,\mathrm{sgn}(W) \cdot slope(x)` (:math:`G\,W \cdot slope(x)` for float weights).
    Weights get :math:`D` if they are floats, else by ``weight_gradient``

    * ``"bigcn"``: :math:`m_o 1[|W| \le 1] D
      + \mathrm{sgn}(W)/K \sum_k \mathrm{sgn}(W_{ok}) D_{ok}`, the derivative through the sign and
      through the scale;
    * ``"ste"``: :math:`m_o 1[|W| \le 1] D`, the scale taken as a constant.

    Source: Wang et al., "Bi-GCN: Binary Graph Convolutional Network", CVPR 2021.

    Args:
        x: ``[N, K]`` float activations (latent, or already +1/-1).
        weight: ``[M, K]`` float latent weights.
        x_scale: multiply by the row scale of ``x``.
        binary_weight: use the weights' signs and scale; else the weights as they are.
        sign_output: return signs instead of scaled products: all, or only of so many of the first
            outputs.
        dropout: probability with which a binarised activation is dropped in training.
        training: whether ``dropout`` acts.
        surrogate: slope in place of the sign's derivative, see
            :func:`~bitgnn.quantize.surrogate_slope`.
        weight_gradient: rule for binary weights.

    Returns:
        ``[N, M]`` tensor of the dtype of ``x``.

    Raises:
        TypeError: ``x`` or ``weight`` holds no floats.
        ValueError: the sizes of ``x`` and ``weight`` do not match, ``dropout`` is not in [0, 1), or
            an option has none of its values.
    """
    owner = "binary_linear"
    if x.dim() != 2 or weight.dim() != 2 or x.size(1) != weight.size(1):
        got = f"{list(x.shape)} and {list(weight.shape)}"
        raise ValueError(f"{owner}: x must be [N, K] and weight [M, K], got {got}")
    if not (x.is_floating_point() and weight.is_floating_point()):
        raise TypeError(f"{owner}: x and weight must hold floats, got {x.dtype} and {weight.dtype}")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"{owner}: dropout must be in [0, 1), got {dropout}")
    for name, value, choices in (
        ("surrogate", surrogate, get_args(Surrogate)),
        ("weight_gradient", weight_gradient, get_args(WeightGradient)),
    ):
        if value not in choices:
            raise ValueError(f"{owner}: {name} must be one of {choices}, got {value!r}")
    signs = weight.size(0) * sign_output if isinstance(sign_output, bool) else sign_output
    with without_autocast(x):
        out: Tensor = _BinaryLinear.apply(
            x.contiguous(), weight.contiguous(), x_scale, binary_weight, signs,
            dropout if training else 0.0, surrogate, weight_gradient,
        )  # fmt: skip
    return out
