"""The row scale mean|x_i|, differentiable, with the bits the operators compute."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.quantize.sign import sgn

__all__ = ["canonical_row_scale", "row_scale"]


def canonical_row_scale(x: Tensor) -> Tensor:
    """``mean |x_i|`` of each row, without gradient.

    Float sums depend on their order, so this is the packing operator's own result: layers in
    training and their frozen forms see the same bits.

    Args:
        x: ``[N, K]`` float tensor.

    Returns:
        ``[N]`` tensor of the dtype of ``x``, computed in float32.
    """
    scale: Tensor = torch.ops.bitgnn.pack_scaled(x.detach().contiguous())[1]
    return scale.to(x.dtype)


class _RowScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return canonical_row_scale(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return sgn(x) * (grad / max(x.size(1), 1)).unsqueeze(1)


def row_scale(x: Tensor) -> Tensor:
    """``mean |x_i|`` of each row with its gradient ``sgn(x) / K``.

    Args:
        x: ``[N, K]`` float tensor.

    Returns:
        ``[N]`` tensor of the dtype of ``x``.

    Raises:
        ValueError: ``x`` is not a matrix.
    """
    if x.dim() != 2:
        raise ValueError(f"row_scale: x must be [N, K], got {list(x.shape)}")
    out: Tensor = _RowScale.apply(x)
    return out
