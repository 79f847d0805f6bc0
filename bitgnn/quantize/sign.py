"""Signs with surrogate gradients, the row scale mean|x_i|, and signs around the mean of a layer."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn._checks import name_type
from bitgnn.quantize.first_order import first_order

Surrogate = Literal["ste", "approx", "identity"]
"""Surrogates for the derivative of the sign, see :func:`surrogate_slope`."""


def sgn(x: Tensor) -> Tensor:
    """Sign with two values: ``+1`` where ``x >= 0``, else ``-1`` (0 gives +1, NaN gives -1).

    ``x`` holds floats of any shape; the result is like it, and no gradient flows through it.
    """
    if has_torch_function_unary(x):  # torch.fx keeps it whole
        out: Tensor = handle_torch_function(sgn, (x,), x)
        return out
    x = x.detach()
    if x.dim() == 0 or x.size(-1) == 0 or (x.dim() != 2 and x.device.type != "cpu"):
        # Keeps the order of dimensions in memory, which convolutions on a GPU live by.
        return torch.where(x >= 0, x.new_ones(()), x.new_full((), -1))
    # Packing and unpacking is a tenth of the time of a comparison and a selection on the CPU, and
    # half as many launches on a GPU.
    words = torch.ops.bitgnn.pack(x.reshape(-1, x.size(-1)).contiguous())
    return torch.ops.bitgnn.unpack(words, x.size(-1)).view(x.shape).to(x.dtype)


def surrogate_slope(x: Tensor, surrogate: Surrogate = "ste", window: float = 1.0) -> Tensor:
    """Slope used in place of the sign's derivative, as a function of ``u = x / window``.

    ``"ste"``: ``1[|u| <= 1]`` (clipped straight-through, Courbariaux et al. 2016).
    ``"approx"``: ``max(0, 2 - 2|u|)`` (ApproxSign, Liu et al., Bi-Real Net, 2018).
    ``"identity"``: 1 everywhere (straight-through without clipping, Khan et al., BinCNN, 2018).

    Args:
        x: floating-point tensor, the argument of the sign.
        surrogate: which slope.
        window: half-width of the part of the axis with a slope, above 0.

    Returns:
        Tensor like ``x``.

    Raises:
        ValueError: ``surrogate`` is none of them.
    """
    _check_surrogate(surrogate)
    if surrogate == "identity":
        return torch.ones_like(x)
    if surrogate == "ste":
        return x.abs().le_(window)
    return (2 - (2 / window) * x.abs()).clamp_(min=0)


def _check_surrogate(surrogate: str) -> None:
    if surrogate not in get_args(Surrogate):
        raise ValueError(f"surrogate must be one of {get_args(Surrogate)}, got {surrogate!r}")


def within(grad: Tensor, x: Tensor, bound: float) -> Tensor:
    """``grad`` where ``|x| <= bound``, else 0: clipped straight-through."""
    if grad.dtype != x.dtype or math.frexp(bound)[0] != 0.5:
        return grad * (x.abs() <= bound)
    # One launch; its bounds are open. Behind a power of two this is the next number.
    edge = bound * (1.0 + torch.finfo(x.dtype).eps)
    out: Tensor = torch.ops.aten.hardtanh_backward(grad, x, -edge, edge)
    return out


class _Sign(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, surrogate: Surrogate, window: float, total: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(x)
        ctx.surrogate, ctx.window = surrogate, window
        if total is None:
            return sgn(x)
        signs: Tensor = torch.ops.bitgnn.row_signs(x.float(), total)
        return signs.to(x.dtype)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        if ctx.surrogate == "identity":
            return grad, None, None, None
        if ctx.surrogate == "ste":
            return within(grad, x, ctx.window), None, None, None
        return grad * surrogate_slope(x, ctx.surrogate, ctx.window), None, None, None


def binary_sign(
    x: Tensor, surrogate: Surrogate = "ste", window: float = 1.0, total: Tensor | None = None
) -> Tensor:
    """``sgn(x)`` whose gradient is ``grad * surrogate_slope(x)``.

    Args:
        x: floating-point tensor of any shape.
        surrogate: see :func:`surrogate_slope`, and so on.
        window: half-width of the part of the axis with a slope.
        total: float32 ``[N]`` for a matrix: rows where it is not finite become NaN.

    Returns:
        Tensor of +1 and -1 like ``x``.

    Raises:
        TypeError: ``x`` holds no floats.
        ValueError: ``surrogate`` is unknown or ``window`` is not above 0.
    """
    _check_surrogate(surrogate)
    if not window > 0:
        raise ValueError(f"window must be above 0, got {window}")
    if has_torch_function_unary(x):
        out: Tensor = handle_torch_function(binary_sign, (x,), x, surrogate, window, total)
        return out
    if not x.is_floating_point():
        raise TypeError(f"binary_sign: x must hold floats, got {x.dtype}")
    out = _Sign.apply(x, surrogate, window, total)
    return out


def canonical_row_scale(x: Tensor) -> Tensor:
    """``mean |x_i|`` of each row of floats ``[N, K]``: ``[N]`` of their dtype, without gradient.

    Float sums depend on their order, so this is the packing operator's own result, computed in
    float32: layers in training and their frozen forms see the same bits.
    """
    scale: Tensor = torch.ops.bitgnn.pack_scaled(x.detach().contiguous())[1]
    return scale.to(x.dtype)


class _RowScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return canonical_row_scale(x)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return sgn(x) * (grad / max(x.size(1), 1)).unsqueeze(1)


def row_scale(x: Tensor) -> Tensor:
    """``mean |x_i|`` of each row of floats ``[N, K]``, and its gradient ``sgn(x) / K``.

    The result is ``[N]`` of the dtype of ``x``, bit for bit :func:`canonical_row_scale`.

    Raises:
        TypeError: ``x`` holds no floats.
        ValueError: ``x`` is not a matrix.
    """
    if not x.is_floating_point():
        raise TypeError(f"row_scale: x must hold floats, got {x.dtype}")
    if x.dim() != 2:
        raise ValueError(f"row_scale: x must be [N, K], got {list(x.shape)}")
    out: Tensor = _RowScale.apply(x)
    return out


class _ShiftedSign(torch.autograd.Function):
    @staticmethod
    def forward(weight: Tensor) -> tuple[Tensor, Tensor]:
        signs, scale = torch.ops.bitgnn.shift_signs(weight.float())
        return signs, scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.dtype = inputs[0].dtype
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1])

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, _: Any) -> Tensor | None:
        if grad is None:
            return None
        (scale,) = ctx.saved_tensors
        passed = grad / (scale + (scale <= 0))
        return (passed - passed.mean()).to(ctx.dtype)


def shifted_sign(weight: Tensor) -> tuple[Tensor, Tensor]:
    r""":math:`\mathrm{sgn}(W - \mu)` and :math:`s_W = \mathrm{mean}|W - \mu|`, one for a layer.

    :math:`\mu` is the mean of all weights. The gradient passes :math:`W_b = s_W\,\mathrm{sgn}`
    straight through to :math:`W - \mu`, the scale taken as a constant: that of the signs divided by
    the scale, less its mean.

    Source: Ding et al., "BWTA: Accurate and Efficient Binarized Transformer by Algorithm-Hardware
    Co-design".

    Args:
        weight: floats of any shape.

    Returns:
        Float32 signs +1 and -1 like ``weight`` (what equals the mean gives +1, NaN -1), and the
        0-d float32 scale.

    Raises:
        TypeError: ``weight`` holds no floats.
    """
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        raise TypeError(f"shifted_sign: weight must be a float tensor, got {name_type(weight)}")
    signs, scale = _ShiftedSign.apply(weight)
    return signs, scale
