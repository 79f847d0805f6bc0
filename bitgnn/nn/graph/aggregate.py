"""Differentiable aggregation over a BitAdjacency, in the operators' own order of additions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency

__all__ = ["aggregate"]


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor | None, operands: tuple[Tensor | None, ...]
    ) -> Tensor:
        rowptr, indices, row, col, back_rowptr, back_indices = operands
        ctx.save_for_backward(row, col, back_rowptr, back_indices)
        bias = None if bias is None else bias.float()
        out = torch.ops.bitgnn.bspmm_fbf(x.float(), rowptr, indices, row, col, bias, trusted=True)
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        row, col, rowptr, indices = ctx.saved_tensors
        grad_x = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.ops.bitgnn.bspmm_fbf(
                grad.float().contiguous(), rowptr, indices, col, row, None, trusted=True
            ).to(grad.dtype)
        if ctx.needs_input_grad[1]:
            grad_bias = grad.sum(0)
        return grad_x, grad_bias, None


def aggregate(
    x: Tensor,
    adjacency: BitAdjacency,
    bias: Tensor | None = None,
    *,
    use_row: bool = True,
    use_col: bool = True,
) -> Tensor:
    r"""``row_scale * (pattern (col_scale * x)) + bias`` with gradients for ``x`` and ``bias``.

    The forward pass is the operator ``bspmm_fbf`` itself, so that a frozen layer reproduces it
    bit for bit; the backward pass is the same operator on the transposed pattern.

    Args:
        x: ``[N, K]`` float activations; computed in float32.
        adjacency: ``[M, N]`` pattern with its factors; no gradient reaches the factors.
        bias: ``[K]`` or None.
        use_row: apply the row factor.
        use_col: apply the column factor (a product on bits cannot).

    Returns:
        ``[M, K]`` tensor of the dtype of ``x``.

    Raises:
        ValueError: the rows of ``x`` are not the columns of ``adjacency``, or both lie on different
            devices.
    """
    if x.size(0) != adjacency.shape[1]:
        raise ValueError(
            f"aggregate: adjacency has {adjacency.shape[1]} columns, x has {x.size(0)} rows"
        )
    if x.device != adjacency.device:
        raise ValueError(f"aggregate: adjacency is on {adjacency.device}, x on {x.device}")
    needs_transposed = torch.is_grad_enabled() and x.requires_grad
    transposed = adjacency.transposed() if needs_transposed else (None, None)
    row = adjacency.row_scale if use_row else None
    col = adjacency.col_scale if use_col else None
    operands = (adjacency.rowptr, adjacency.indices, row, col, *transposed)
    out: Tensor = _Aggregate.apply(x.contiguous(), bias, operands)
    return out
