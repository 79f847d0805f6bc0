"""Differentiable aggregation over a BitAdjacency, in the operators' own order of additions."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency

__all__ = ["aggregate"]

_transposed: weakref.WeakKeyDictionary[BitAdjacency, tuple[Tensor, Tensor]] = (
    weakref.WeakKeyDictionary()
)


def _transposed_pattern(adjacency: BitAdjacency) -> tuple[Tensor, Tensor]:
    """Row pointer and indices of the transposed pattern, kept as long as ``adjacency`` lives."""
    pattern = _transposed.get(adjacency)
    if pattern is None:
        num_rows, num_cols = adjacency.shape
        counts = torch.diff(adjacency.rowptr.long())
        rows = torch.repeat_interleave(torch.arange(num_rows, device=counts.device), counts)
        columns = adjacency.indices.long()
        rowptr = torch.zeros(num_cols + 1, dtype=torch.int64, device=counts.device)
        torch.cumsum(torch.bincount(columns, minlength=num_cols), 0, out=rowptr[1:])
        order = torch.argsort(columns, stable=True)
        pattern = (rowptr.to(adjacency.rowptr.dtype), rows[order].int())
        _transposed[adjacency] = pattern
    return pattern


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor | None, adjacency: BitAdjacency, use_col: bool
    ) -> Tensor:
        ctx.adjacency, ctx.use_col = adjacency, use_col
        out = torch.ops.bitgnn.bspmm_fbf(
            x.float(),
            adjacency.rowptr,
            adjacency.indices,
            adjacency.row,
            adjacency.col if use_col else None,
            None if bias is None else bias.float(),
        )
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_x = grad_bias = None
        adjacency = ctx.adjacency
        if ctx.needs_input_grad[0]:
            rowptr, indices = _transposed_pattern(adjacency)
            col = adjacency.col if ctx.use_col else None
            grad_x = torch.ops.bitgnn.bspmm_fbf(
                grad.float().contiguous(), rowptr, indices, col, adjacency.row, None
            ).to(grad.dtype)
        if ctx.needs_input_grad[1]:
            grad_bias = grad.sum(0)
        return grad_x, grad_bias, None, None


def aggregate(
    x: Tensor, adjacency: BitAdjacency, bias: Tensor | None = None, *, use_col: bool = True
) -> Tensor:
    r"""``row * (pattern (col * x)) + bias`` with gradients for ``x`` and ``bias``.

    The forward pass is the operator ``bspmm_fbf`` itself, so that a frozen layer reproduces it
    bit for bit; the backward pass is the same operator on the transposed pattern.

    Args:
        x: ``[N, K]`` float activations; computed in float32.
        adjacency: ``[M, N]`` pattern with its factors; no gradient reaches the factors.
        bias: ``[K]`` or None.
        use_col: apply the column factor (a product on bits cannot).

    Returns:
        ``[M, K]`` tensor of the dtype of ``x``.

    Raises:
        ValueError: the rows of ``x`` are not the columns of ``adjacency``.
    """
    if x.size(0) != adjacency.shape[1]:
        raise ValueError(
            f"aggregate: adjacency has {adjacency.shape[1]} columns, x has {x.size(0)} rows"
        )
    out: Tensor = _Aggregate.apply(x.contiguous(), bias, adjacency, use_col)
    return out
