"""Tables of narrow integers between a product and its aggregation, as kernels lay them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bitgnn.bits import BitAdjacency, BlockedAdjacency
from bitgnn.inference.program import Step
from bitgnn.inference.row_order import row_order_of
from bitgnn.ops.reference.heads import HEADS

__all__ = [
    "csr_bytes",
    "is_narrow",
    "is_wide",
    "narrow_bytes",
    "pair_of",
    "unheld_by_narrow",
    "without_head",
]

WORD_BITS, WORD_BYTES, FLOAT_BYTES, INDEX_BYTES, POINTER_BYTES = 32, 4, 4, 4, 8

# As in csrc/bspmm/narrow_sums.h.
MOST_BYTE_FEATURES, MOST_TEN_BIT_FEATURES, MOST_SHORT_FEATURES = 255, 1023, 65535

# As in csrc/pairs/cpu/narrow.cpp.
SMALL_ROW_WORDS, LARGE_ROW_WORDS = 4, 8
LANE_INTEGERS, LINE_BYTES = 16, 64

# As in csrc/pairs/cuda/narrow/forms.cuh: features of a product up to which a form holds
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
    (MOST_TEN_BIT_FEATURES, 16, 8),
    (MOST_TEN_BIT_FEATURES, 16, 12),
    (MOST_TEN_BIT_FEATURES, 32, 24),
    (MOST_TEN_BIT_FEATURES, 64, 48),
    (MOST_SHORT_FEATURES, 64, 32),
)
WIDEST_PITCH = 64

# As in csrc/pairs/cuda/narrow/product.cu: products that are counted straight into the table.
MOST_DIRECT_WORDS, MOST_DIRECT_COUNTS, MOST_DIRECT_BYTES = 16, 1 << 28, 16 << 10

# As in csrc/pairs/cuda/narrow/route.cu: wider rows are narrow where many edges read them.
MOST_NARROW_COLUMNS, WIDE_USES = 48, 16

# As in csrc/pairs/cuda/wide/rows.cuh and csrc/pairs/cuda/wide/sums.cu: rows that are not
# narrow have parts of 64 columns, one, two or fours of them, of 128 bytes each.
PART_COLUMNS, PART_BYTES, CHUNK_PARTS = 64, 128, 4
MOST_WIDE_WEIGHT_BYTES = 100 << 10


def without_head(group: Sequence[Step]) -> Sequence[Step]:
    """The steps of a call but for a head at its end."""
    return group[:-1] if len(group) > 1 and group[-1].kind in HEADS else group


def pair_of(group: Sequence[Step]) -> Sequence[Step]:
    """The last two steps of a call but for a head or a product that is added to their result."""
    body = without_head(group)
    return (body[:-1] if len(body) > 2 and body[-1].kind == "bmm_add" else body)[-2:]


def is_narrow(group: Sequence[Step], graphs: Sequence[Any], device: torch.device) -> bool:
    """Whether a call ends in a product whose rows are integers until they are summed.

    Args:
        group: the steps that the call does.
        graphs: adjacencies by number.
        device: where it runs.
    """
    if not _is_pair(group):
        return False
    product, aggregation = pair_of(group)
    size, columns = product.attributes["size"], product.attributes["out"]
    if "bias" in product.tensors or size > MOST_SHORT_FEATURES:
        return False
    if device.type != "cuda" or columns <= MOST_NARROW_COLUMNS:
        return True
    assert aggregation.graph is not None, "Program.check requires it"
    adjacency = graphs[aggregation.graph]
    has_factors: bool = product.attributes["scaled"] or adjacency.col is not None
    is_scaled = has_factors or "weight_scale" in product.tensors
    return is_scaled or not is_wide(columns, size, adjacency)


def is_wide(columns: int, size: int, adjacency: Any) -> bool:
    """Whether rows on CUDA are too wide for the narrow forms.

    Args:
        columns: of a row.
        size: features of the product.
        adjacency: the pattern that the rows are summed over.
    """
    is_read_often = adjacency.nnz >= WIDE_USES * adjacency.num_cols
    return columns > MOST_NARROW_COLUMNS and not (is_read_often and size <= MOST_TEN_BIT_FEATURES)


def _is_pair(group: Sequence[Step]) -> bool:
    return [step.kind for step in pair_of(group)] == ["bmm_bbf", "bspmm_fbf"]


def csr_bytes(group: Sequence[Step], graphs: Sequence[Any]) -> int:
    """Bytes of the CSR that such a call makes of column blocks where floats are gathered."""
    if not _is_pair(group):
        return 0
    _, aggregation = pair_of(group)
    assert aggregation.graph is not None, "Program.check requires it"
    return _csr_bytes(graphs[aggregation.graph])


def _csr_bytes(adjacency: Any) -> int:
    if not isinstance(adjacency, BlockedAdjacency):
        return 0
    return (adjacency.shape[0] + 1) * POINTER_BYTES + adjacency.nnz * INDEX_BYTES


def unheld_by_narrow(
    group: Sequence[Step], graphs: Sequence[Any], device: torch.device
) -> frozenset[int]:
    """Registers that a call never holds, for which :func:`is_narrow` is true.

    The product, and its sums too where the kernels have the head that follows or another product is
    added to them where they lie.

    Args:
        group: the steps that the call does.
        graphs: adjacencies by number.
        device: where it runs.
    """
    body = without_head(group)
    product, aggregation = pair_of(group)
    if body[-1] is not aggregation:
        return frozenset(product.outputs) | frozenset(aggregation.outputs)
    if len(body) == len(group):
        return frozenset(product.outputs)
    if device.type == "cuda":
        assert aggregation.graph is not None, "Program.check requires it"
        columns = product.attributes["out"]
        has_factors = product.attributes["scaled"] or graphs[aggregation.graph].col is not None
        _, held = _form(columns, product.attributes["size"], has_factors)
        has_head = columns <= held
    else:
        has_head = group[-1].kind == "classes"
    return frozenset(product.outputs) | frozenset(aggregation.outputs if has_head else ())


def narrow_bytes(
    group: Sequence[Step], adjacency: Any, num_nodes: int, device: torch.device
) -> int:
    """Bytes that such a call holds beside its input and its result.

    Args:
        group: the steps that the call does but for a head, for which :func:`is_narrow` is true.
        adjacency: the pattern, with its factors.
        num_nodes: rows of the product.
        device: where it runs.
    """
    product, _ = pair_of(group)
    size, columns, scaled = (product.attributes[name] for name in ("size", "out", "scaled"))
    has_factors = scaled or adjacency.col is not None
    if device.type != "cuda":
        return num_nodes * _cpu_row_bytes(columns, size, has_factors)
    words = -(-size // WORD_BITS)
    packed = 0
    if group[0] is not product:  # it packs as well
        packed = num_nodes * (words * WORD_BYTES + (FLOAT_BYTES if scaled else 0))
    if is_wide(columns, size, adjacency):
        return packed + _csr_bytes(adjacency) + _wide_bytes(num_nodes, columns, words)
    if isinstance(adjacency, BitAdjacency):
        row_order_of(adjacency)  # which the first call would find, and the adjacency counts
    return packed + _table_bytes(num_nodes, columns, size, has_factors)


def _wide_bytes(nodes: int, columns: int, words: int) -> int:
    parts = -(-columns // PART_COLUMNS)
    if parts > CHUNK_PARTS // 2:
        parts = -(-parts // CHUNK_PARTS) * CHUNK_PARTS
    # Weights in shared memory: rows of an odd number of 16-byte units, and a count each.
    pitch = (-(-words // 8) * 2 | 1) * 4
    is_direct = parts * PART_COLUMNS * (pitch + 1) * WORD_BYTES <= MOST_WIDE_WEIGHT_BYTES
    return nodes * (parts * PART_BYTES + FLOAT_BYTES + (0 if is_direct else columns * WORD_BYTES))


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


def _form(columns: int, size: int, has_factors: bool) -> tuple[int, int]:
    """Bytes of a row, and the columns of it, in the form that holds a product."""
    forms = FACTORED_FORMS if has_factors else PLAIN_FORMS
    return next(
        (pitch, held)
        for most, pitch, held in forms
        if size <= most and (columns <= held or pitch == WIDEST_PITCH)
    )


def _table_bytes(nodes: int, columns: int, size: int, has_factors: bool) -> int:
    pitch, held = _form(columns, size, has_factors)
    words = -(-size // WORD_BITS)
    is_direct = (
        words <= MOST_DIRECT_WORDS
        and columns * words * WORD_BYTES <= MOST_DIRECT_BYTES
        and nodes * columns * words <= MOST_DIRECT_COUNTS
    )
    return nodes * (-(-columns // held) * pitch + (0 if is_direct else columns * WORD_BYTES))
