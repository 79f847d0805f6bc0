"""Bits that are mostly 0 as the pattern of those that are 1."""

import torch
from torch import Tensor

from bitgnn.bits.adjacency import BitAdjacency
from bitgnn.bits.layouts import pointer_dtype
from bitgnn.bits.tensor import BitTensor

_ROWS_AT_ONCE = 1 << 14


def set_bits(bits: BitTensor) -> BitAdjacency:
    """The positions of the set bits: ``pattern[i, k] = 1`` where feature ``k`` of row ``i`` is +1.

    With it a binary product needs only the weights of set bits,
    ``sum_k x[i, k] w[o, k] = 2 * sum_{k set} w[o, k] - sum_k w[o, k]``, which is BSpMM over this
    pattern. It is smaller and faster than the packed words where a row has fewer set bits than
    words, as with bag-of-words features.

    Args:
        bits: ``[N, size]``; the scale is left out.

    Returns:
        The pattern ``[N, size]`` without factors, columns ascending in each row.
    """
    counts, columns = [], []
    for start in range(0, bits.words.size(0), _ROWS_AT_ONCE):
        block = BitTensor(bits.words[start : start + _ROWS_AT_ONCE], bits.size).to_float() > 0
        counts.append(block.sum(1))
        columns.append(block.nonzero()[:, 1].to(torch.int32))
    device = bits.words.device
    none = torch.empty(0, dtype=torch.int32, device=device)
    indices = torch.cat(columns) if columns else none
    rowptr = torch.zeros(bits.words.size(0) + 1, dtype=torch.int64, device=device)
    if counts:
        torch.cumsum(torch.cat(counts), 0, out=rowptr[1:])
    return BitAdjacency(rowptr.to(pointer_dtype(len(indices))), indices, bits.size)


def select_rows(pattern: BitAdjacency, rows: Tensor) -> BitAdjacency:
    """Rows of a pattern without factors, in the order given, columns as they are.

    Args:
        pattern: ``[M, N]``, as :func:`set_bits` makes it.
        rows: int64 ``[R]``, each in [0, M); a row may occur more than once.

    Returns:
        The pattern ``[R, N]``.
    """
    starts = pattern.rowptr[:-1].long()[rows]
    ends = torch.zeros(rows.numel() + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(pattern.rowptr.diff()[rows], 0, out=ends[1:])
    # Entry e of row r in the result is entry e - ends[r] + starts[r] of the pattern.
    shift = torch.repeat_interleave(starts - ends[:-1], ends.diff())
    indices = pattern.indices[torch.arange(shift.numel(), device=rows.device) + shift]
    return BitAdjacency._trusted(
        ends.to(pointer_dtype(len(indices))), indices, pattern.num_cols, None, None
    )
