"""Tables of narrow integers between a product and its aggregation, as kernels lay them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bitgnn.inference.program import Step

__all__ = ["is_narrow", "narrow_bytes"]

WORD_BITS, WORD_BYTES, FLOAT_BYTES = 32, 4, 4

# As in csrc/include/bitgnn/narrow_sums.h.
MOST_BYTE_FEATURES, MOST_TEN_BIT_FEATURES, MOST_SHORT_FEATURES = 255, 1023, 65535

# As in csrc/cpu/backend_narrow.cpp.
SMALL_ROW_WORDS, LARGE_ROW_WORDS = 4, 8
LANE_INTEGERS, LINE_BYTES = 16, 64

# As in csrc/include/bitgnn/cuda/narrow_forms.cuh: features of a product up to which a form holds
# it, bytes of a row, and columns of a row.
FACTORED_FORMS = (
    (MOST_BYTE_FEATURES, 8, 4),
    (MOST_BYTE_FEATURES, 16, 8),
    (MOST_TEN_BIT_FEATURES, 16, 8),
    (MOST_SHORT_FEATURES, 16, 6),
    (MOST_BYTE_FEATURES, 32, 24),
    (MOST_TEN_BIT_FEATURES, 32, 18),
    (MOST_BYTE_FEATURES, 64, 48),
    (MOST_TEN_BIT_FEATURES, 64, 45),
    (MOST_SHORT_FEATURES, 64, 24),
)
PLAIN_FORMS = (
    (MOST_BYTE_FEATURES, 8, 8),
    (MOST_TEN_BIT_FEATURES, 16, 12),
    (MOST_TEN_BIT_FEATURES, 32, 24),
    (MOST_TEN_BIT_FEATURES, 64, 48),
    (MOST_SHORT_FEATURES, 64, 32),
)
WIDEST_PITCH = 64

# As in csrc/cuda/narrow_product.cu: products that are counted straight into the table.
MOST_DIRECT_WORDS, MOST_DIRECT_COUNTS, MOST_DIRECT_BYTES = 16, 1 << 28, 16 << 10

# As in csrc/cuda/aggregate_narrow.cu: wider rows are narrow where many edges read them.
MOST_NARROW_COLUMNS, WIDE_USES = 48, 16


def is_narrow(group: Sequence[Step], graphs: Sequence[Any], device: torch.device) -> bool:
    """Whether a call ends in a product whose rows are narrow integers until they are summed.

    Args:
        group: the steps that the call does.
        graphs: adjacencies by number.
        device: where it runs.
    """
    if [step.kind for step in group[-2:]] != ["bmm_bbf", "bspmm_fbf"]:
        return False
    product, aggregation = group[-2:]
    size, columns = product.attributes["size"], product.attributes["out"]
    if "bias" in product.tensors or size > MOST_SHORT_FEATURES:
        return False
    if device.type != "cuda" or columns <= MOST_NARROW_COLUMNS:
        return True
    assert aggregation.graph is not None, "Program.check requires it"
    adjacency = graphs[aggregation.graph]
    is_read_often: bool = adjacency.nnz >= WIDE_USES * adjacency.num_cols
    return is_read_often and size <= MOST_TEN_BIT_FEATURES


def narrow_bytes(
    group: Sequence[Step], adjacency: Any, num_nodes: int, device: torch.device
) -> int:
    """Bytes that such a call holds beside its input and its result.

    Args:
        group: the steps that the call does, for which :func:`is_narrow` is true.
        adjacency: the pattern, with its factors.
        num_nodes: rows of the product.
        device: where it runs.
    """
    product = group[-2]
    size, columns, scaled = (product.attributes[name] for name in ("size", "out", "scaled"))
    has_factors = scaled or adjacency.col is not None
    if device.type != "cuda":
        return num_nodes * _cpu_row_bytes(columns, size, has_factors)
    words = -(-size // WORD_BITS)
    packed = 0
    if group[0] is not product:  # it packs as well
        packed = num_nodes * (words * WORD_BYTES + (FLOAT_BYTES if scaled else 0))
    return packed + _table_bytes(num_nodes, columns, size, has_factors)


def _cpu_row_bytes(columns: int, size: int, has_factors: bool) -> int:
    words = columns + has_factors
    if words <= LARGE_ROW_WORDS:
        return FLOAT_BYTES * (SMALL_ROW_WORDS if words <= SMALL_ROW_WORDS else LARGE_ROW_WORDS)
    halves = columns + (has_factors and size % 2)
    needed = -(-halves // LANE_INTEGERS) * LANE_INTEGERS * (1 + (size > MOST_BYTE_FEATURES))
    needed += FLOAT_BYTES * has_factors
    stride = LANE_INTEGERS
    while stride < needed:
        stride += min(stride, LINE_BYTES)
    return stride


def _table_bytes(nodes: int, columns: int, size: int, has_factors: bool) -> int:
    forms = FACTORED_FORMS if has_factors else PLAIN_FORMS
    _, pitch, held = next(
        (most, pitch, held)
        for most, pitch, held in forms
        if size <= most and (columns <= held or pitch == WIDEST_PITCH)
    )
    words = -(-size // WORD_BITS)
    is_direct = (
        words <= MOST_DIRECT_WORDS
        and columns * words * WORD_BYTES <= MOST_DIRECT_BYTES
        and nodes * columns * words <= MOST_DIRECT_COUNTS
    )
    return nodes * (-(-columns // held) * pitch + (0 if is_direct else columns * WORD_BYTES))
