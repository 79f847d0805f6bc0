"""Sums of integer products in evaluation, in the order in which frozen models sum them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency

__all__ = ["IntegerProduct", "with_value"]


class IntegerProduct(NamedTuple):
    """A product ``scale * dot + shift``: its integers can be summed before scale and shift.

    Attributes:
        words: packed input bits, int32 ``[N, ceil(B / 32)]``.
        weight: packed signs of the weights, int32 ``[M, ceil(B / 32)]``.
        size: B.
        scale: float32 ``[M]``.
        shift: float32 ``[M]``, or None.
        total: ``[N]``, finite where all of an input row is.
    """

    words: Tensor
    weight: Tensor
    size: int
    scale: Tensor
    shift: Tensor | None
    total: Tensor

    def sums(self, adjacency: BitAdjacency, bias: Tensor | None, use_col: bool) -> Tensor:
        """``row_scale * (scale * pattern (col_scale * dot) + shift * pattern col_scale) + bias``.

        Has no gradient.

        Args:
            adjacency: the pattern.
            bias: ``[M]`` or None.
            use_col: apply the column factor.

        Returns:
            Float32 ``[rows, M]``.
        """
        a, col = adjacency, adjacency.col_scale if use_col else None
        bias = None if bias is None else bias.detach().float()
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
    """``value`` with the gradient of ``x`` and its NaN and infinite entries.

    Args:
        x: float tensor.
        value: the same numbers, rounded in another order.
    """
    out: Tensor = _WithValue.apply(x, value)
    return out
