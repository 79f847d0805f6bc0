"""Values of edges in 1 to 4 bits: their rounding, and the patterns of their bit planes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bitgnn._checks import name_type
from bitgnn.bits.layouts import offsets, row_indices

if TYPE_CHECKING:
    from bitgnn.bits.adjacency import BitAdjacency

MOST_BITS = 4


@dataclass(frozen=True, eq=False)
class Planes:
    """Integers of edges as ``sum_p weights[p] * patterns[p]``, in two's complement."""

    weights: tuple[int, ...]
    patterns: tuple[BitAdjacency, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the patterns."""
        return sum(pattern.nbytes for pattern in self.patterns)


def check_bits(bits: int | None, name: str) -> None:
    """Require None or a number of bits that values may have."""
    if bits is not None and (type(bits) is not int or not 1 <= bits <= MOST_BITS):
        found = bits if type(bits) is int else name_type(bits)
        raise ValueError(f"{name}: value_bits must be None or from 1 to {MOST_BITS}, got {found}")


def quantized(adjacency: BitAdjacency, bits: int) -> BitAdjacency:
    """Adjacency with values ``row_scale[i] * q[e]``, ``q`` the nearest integers of ``bits`` bits.

    Without negative values ``q`` is in [0, 2^bits - 1], else in +-(2^(bits - 1) - 1); the largest
    magnitude of a row takes the end of the range. Entries that round to 0 are left out.
    """
    assert adjacency.values is not None
    values, num_rows = adjacency.values.detach(), adjacency.shape[0]
    is_signed = bool((values < 0).any())
    largest = 2 ** (bits - is_signed) - 1
    if largest == 0:
        raise ValueError("BitAdjacency: value_bits must be at least 2 for negative weights, got 1")
    rows = row_indices(adjacency.rowptr)
    most = torch.zeros(num_rows, device=values.device, dtype=torch.float32)
    step = most.scatter_reduce_(0, rows, values.abs(), "amax") / largest
    q = (values / step[rows]).round_()
    kept = q != 0
    rowptr = offsets(torch.bincount(rows[kept], minlength=num_rows)).to(adjacency.rowptr.dtype)
    parts = (rowptr, adjacency.indices[kept], adjacency.num_cols, step, None, q[kept], bits)
    return type(adjacency)._trusted(*parts)


def planes_of(adjacency: BitAdjacency) -> Planes:
    """The planes of values in ``value_bits``."""
    bits, values = adjacency.value_bits, adjacency.values
    assert bits is not None
    assert values is not None
    codes, rows = values.to(torch.int32), row_indices(adjacency.rowptr)
    weights = [2**place for place in range(bits)]
    if bool((codes < 0).any()):
        weights[-1] = -weights[-1]
    patterns = []
    for place in range(bits):
        held = (codes >> place & 1).bool()
        rowptr = offsets(torch.bincount(rows[held], minlength=adjacency.shape[0]))
        parts = (rowptr.to(adjacency.rowptr.dtype), adjacency.indices[held], adjacency.num_cols)
        patterns.append(type(adjacency)._trusted(*parts))
    return Planes(tuple(weights), tuple(patterns))
