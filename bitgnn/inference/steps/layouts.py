"""Aggregation of bits in the layout that a graph was prepared in."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency

__all__ = ["bind_bits_aggregation", "words_of"]

Aggregation = Callable[..., Tensor]

WORD_BITS = 32

# Bound once: resolving an overload by name costs as much as a small kernel.
_TO_BITS = {
    "csr": torch.ops.bitgnn.bspmm_bbb.default,
    "sliced": torch.ops.bitgnn.bspmm_bbb_sliced.default,
    "frdc": torch.ops.bitgnn.bspmm_bbb_frdc.default,
}
_TO_FLOATS = {
    "csr": torch.ops.bitgnn.bspmm_bbf.default,
    "sliced": torch.ops.bitgnn.bspmm_bbf_sliced.default,
    "frdc": torch.ops.bitgnn.bspmm_bbf_frdc.default,
}


def words_of(size: int) -> int:
    """Words of a packed row of ``size`` features."""
    return -(-size // WORD_BITS)


def bind_bits_aggregation(to_bits: bool, size: int, last: Tensor | None) -> Aggregation:
    """The aggregation of packed rows in the layout that the graph was prepared in.

    Args:
        to_bits: packed results, else float32.
        size: features of a row.
        last: float32 ``[size]``, the threshold of packed results or the bias of floats.

    Returns:
        Takes words ``[N, W]``, the pattern, and whether its row factor acts; gives words
        ``[M, W]`` or float32 ``[M, size]``.
    """
    operators, words = _TO_BITS if to_bits else _TO_FLOATS, words_of(size)
    csr, sliced, frdc = (operators[layout] for layout in ("csr", "sliced", "frdc"))

    def aggregate(x: Tensor, a: BitAdjacency, use_row: bool = True) -> Tensor:
        layout, row = a.planned_layout(words), a.row_scale if use_row else None
        if layout == "csr":
            result: Tensor = csr(x, size, a.rowptr, a.indices, row, last, trusted=True)
        elif layout == "sliced":
            result = sliced(x, size, *a.sliced().arguments, row, last, trusted=True)
        else:
            result = frdc(x, size, *a.frdc_arguments, row, last, trusted=True)
        return result

    return aggregate
