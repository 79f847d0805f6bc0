"""The rows of a pattern, the longest first, in the form that CUDA kernels read."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["build_row_order"]

DEGREE_BITS = 32

# As in csrc/pairs/arguments.h: edges that a few lanes take at a time.
ORDER_STEP = 32


def build_row_order(rowptr: Tensor) -> Tensor:
    """Int64 ``[M, 2]``: the first edge of each row, and ``degree + row * 2**32``.

    Rows come by descending ``degree // 32``, those of one such step as they lie. Waits for the
    device, so that every stream may read the result.

    Args:
        rowptr: ``[M + 1]``, of degrees below 2**31.
    """
    degree = rowptr.diff().long()
    rows = torch.sort(degree // ORDER_STEP, descending=True, stable=True).indices
    order = torch.stack([rowptr[rows].long(), degree[rows] + (rows << DEGREE_BITS)], dim=1)
    if order.is_cuda:
        torch.cuda.current_stream(order.device).synchronize()
    return order
