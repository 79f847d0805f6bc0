"""Sums of floats and integers over a layer's adjacency, with their gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency
from bitgnn.bits.layouts import row_indices
from bitgnn.nn.spread import SpreadPattern
from bitgnn.ops.weighted import weighted_sums

PRODUCT_EDGES = 1 << 16
"""Edges whose two rows are multiplied at a time in the gradient of their weights."""


class _Aggregate(torch.autograd.Function):
    """Linear in ``x``: the backward pass is the function itself on the transposed pattern.

    Second and higher derivatives are therefore right as well.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor | None, operands: tuple[Tensor | None, ...]
    ) -> Tensor:
        rowptr, indices, row, col = operands[:4]
        ctx.save_for_backward(*operands)
        bias = None if bias is None else bias.float()
        out = torch.ops.bitgnn.bspmm_fbf(x.float(), rowptr, indices, row, col, bias, trusted=True)
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rowptr, indices, row, col, back_rowptr, back_indices = ctx.saved_tensors
        grad_x = grad_bias = None
        if ctx.needs_input_grad[0]:
            transposed = (back_rowptr, back_indices, col, row, rowptr, indices)
            grad_x = _Aggregate.apply(grad.contiguous(), None, transposed)
        if ctx.needs_input_grad[1]:
            grad_bias = grad.sum(0)
        return grad_x, grad_bias, None


class _AggregateValues(torch.autograd.Function):
    """Linear in ``x`` and values, whose gradients are transposed sums and dot products of rows.

    ``operands`` are row pointer and indices, the same of the transposed pattern, and the entry of
    each of its entries.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        values: Tensor,
        bias: Tensor | None,
        operands: tuple[Tensor | None, ...],
    ) -> Tensor:
        ctx.save_for_backward(x, values, *operands)
        bias = None if bias is None else bias.float()
        csr = (*operands[:2], values.detach())
        out = torch.ops.bitgnn.bspmm_fff(x.float(), *csr, bias, trusted=True)
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, values, rowptr, indices, back_rowptr, back_indices, order = ctx.saved_tensors
        grad_x = grad_values = grad_bias = None
        grad = grad.contiguous()
        if ctx.needs_input_grad[0]:
            inverse = None
            if torch.is_grad_enabled():  # for second derivatives
                inverse = torch.empty_like(order)
                inverse[order] = torch.arange(len(order), device=order.device)
            transposed = (back_rowptr, back_indices, rowptr, indices, inverse)
            grad_x = _AggregateValues.apply(grad, values[order], None, transposed)
        if ctx.needs_input_grad[1]:
            grad_values = _products_of_edges(grad, x, row_indices(rowptr), indices)
        if ctx.needs_input_grad[2]:
            grad_bias = grad.sum(0)
        return grad_x, grad_values, grad_bias, None


def _products_of_edges(a: Tensor, b: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Float32 ``[E]``: the dot product of ``a[rows[e]]`` and ``b[columns[e]]`` of each edge."""
    ends = zip(rows.split(PRODUCT_EDGES), columns.split(PRODUCT_EDGES), strict=True)
    return torch.cat([(a[i].float() * b[j].float()).sum(1) for i, j in ends])


def aggregate(
    x: Tensor,
    adjacency: BitAdjacency,
    bias: Tensor | None = None,
    *,
    use_row: bool = True,
    use_col: bool = True,
) -> Tensor:
    r"""``row_scale * (pattern (col_scale * x)) + bias``, or ``row_scale * (values x) + bias``.

    Gradients reach ``x``, ``bias`` and the values. The forward pass is the operator ``bspmm_fbf``
    or ``bspmm_fff`` itself, so that a frozen layer reproduces it bit for bit; the backward pass is
    the same operator on the transposed pattern. ``x`` is ``[N, K]`` of any float dtype, that of the
    result, and is summed in float32; factors get no gradient. A product on bits cannot ``use_col``.
    """
    if x.size(0) != adjacency.shape[1]:
        raise ValueError(
            f"aggregate: adjacency has {adjacency.shape[1]} columns, x has {x.size(0)} rows"
        )
    if x.device != adjacency.device:
        raise ValueError(f"aggregate: adjacency is on {adjacency.device}, x on {x.device}")
    adjacency.check_written()
    needs_transposed = torch.is_grad_enabled() and x.requires_grad
    transposed = adjacency.transposed() if needs_transposed else (None, None)
    pattern = (adjacency.rowptr, adjacency.indices)
    out: Tensor
    if adjacency.values is not None:
        order = adjacency.transposed_order() if needs_transposed else None
        operands, row = (*pattern, *transposed, order), adjacency.row_scale if use_row else None
        last = bias if row is None else None
        out = _AggregateValues.apply(x.contiguous(), adjacency.values, last, operands)
        if row is None:
            return out
        out = row.unsqueeze(1) * out
        return (out if bias is None else out + bias).to(x.dtype)
    row = adjacency.row_scale if use_row else None
    col = adjacency.col_scale if use_col else None
    out = _Aggregate.apply(x.contiguous(), bias, (*pattern, row, col, *transposed))
    return out


class IntegerProduct(NamedTuple):
    """A product ``scale * dot + shift``: its integers can be summed before scale and shift."""

    words: Tensor
    """Packed input bits, int32 ``[N, ceil(B / 32)]``."""
    weight: Tensor
    """Packed signs of the weights, int32 ``[M, ceil(B / 32)]``."""
    size: int
    """B."""
    scale: Tensor
    """Float32 ``[M]``."""
    shift: Tensor | None
    """Float32 ``[M]``, or None."""
    total: Tensor
    """``[N]``, finite where all of an input row is."""

    def sums(
        self, adjacency: BitAdjacency | SpreadPattern, bias: Tensor | None, use_col: bool
    ) -> Tensor:
        """``row_scale * (scale * pattern (col_scale * dot) + shift * pattern col_scale) + bias``.

        Over values: ``A (scale * dot + shift) + bias``. In the order of frozen models; without
        gradient. Float32 ``[rows, M]``.
        """
        if isinstance(adjacency, SpreadPattern):
            return adjacency.integer_sums(self, bias, use_col)
        adjacency.check_written()
        a, col = adjacency, adjacency.col_scale if use_col else None
        bias = None if bias is None else bias.detach().float()
        if a.values is not None:
            product = (self.words, self.weight, self.size, None, self.scale, self.shift)
            return weighted_sums(torch.ops.bitgnn.bmm_bbf(*product), None, a, bias)
        out: Tensor = torch.ops.bitgnn.bmm_bspmm_narrow(
            self.words, self.weight, self.size, a.rowptr, a.indices, None, self.scale,
            None, None, False, a.row_scale, col, bias, shift=self.shift,
            trusted=True,
        )  # fmt: skip
        return out


class _WithValue(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor) -> Tensor:
        return torch.where(torch.isfinite(x), value.to(x.dtype), x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def with_value(x: Tensor, value: Tensor) -> Tensor:
    """``value``, ``x`` rounded in another order, with the gradient, NaN and infinities of ``x``."""
    out: Tensor = _WithValue.apply(x, value)
    return out
