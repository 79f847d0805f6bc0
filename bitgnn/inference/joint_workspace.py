"""Sums of neighbours that CUDA kernels join with a product: what they hold in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bitgnn.bits.sliced import shared_bytes
from bitgnn.inference.program import Step

__all__ = ["is_joined", "staged_bytes"]

WORD_BITS, WORD_BYTES = 32, 4

# As in csrc/pairs/cuda/joint/route.cu: sums and products joined on tensor cores.
CAPABILITIES = ((8, 0), (10, 0))
LEAST_ROWS, MOST_NEIGHBOURS = 1 << 15, 64
UNPADDED_WORDS, ACCESS_WORDS = 2, 4
KERNEL_FEATURES, KERNEL_ROWS = 256, 8 * 16
ROW_BYTES = 444  # of a row's planes and factors, beside its packed bits
STATIC_BYTES, MMA_WORDS, PITCH_SPARE = (6 << 10) + 5184, 8, 4

# As there and in csrc/pairs/cuda/joint/staged_counts.cuh: counts of a byte between two kernels,
# in tiles of rows with what each row contributes.
FEW_NEIGHBOURS, STAGED_MOST_FEATURES = 16, 512
TILE_ROWS, STAGED_ROW_BYTES = 16, 16


def is_joined(group: Sequence[Step], graphs: Sequence[Any], device: torch.device) -> bool:
    """Whether a call's last two steps are a sum and a product whose sums are never held as floats.

    Args:
        group: the steps that the call does.
        graphs: adjacencies by number.
        device: where it runs.
    """
    kinds = [step.kind for step in group]
    if device.type != "cuda" or kinds[-2:] != ["bspmm_bbf", "bmm_add_bits"]:
        return False
    sums, root = group[-2:]
    assert sums.graph is not None, "Program.check requires it"
    words, adjacency = -(-sums.attributes["size"] // WORD_BITS), graphs[sums.graph]
    layout, rows = adjacency.planned_layout(words), adjacency.shape[0]
    access = UNPADDED_WORDS if words <= UNPADDED_WORDS else ACCESS_WORDS
    least, beyond = CAPABILITIES
    return (
        least <= torch.cuda.get_device_capability(device) < beyond
        and layout not in ("blocked", "frdc")
        and rows >= LEAST_ROWS
        and (layout != "csr" or words % access == 0)
        and (layout != "csr" or adjacency.nnz <= MOST_NEIGHBOURS * rows)
        and _shared_bytes(-(-root.attributes["size"] // WORD_BITS)) <= shared_bytes(device)
    )


def staged_bytes(group: Sequence[Step], graphs: Sequence[Any]) -> int:
    """Bytes of the counts between the two kernels of a call for which :func:`is_joined` is true.

    Args:
        group: the steps that the call does.
        graphs: adjacencies by number.
    """
    sums, root = group[-2:]
    assert sums.graph is not None, "Program.check requires it"
    words, adjacency = -(-sums.attributes["size"] // WORD_BITS), graphs[sums.graph]
    rows, size = adjacency.shape[0], root.attributes["size"]
    if (
        adjacency.planned_layout(words) != "csr"
        or adjacency.nnz > FEW_NEIGHBOURS * rows
        or size > STAGED_MOST_FEATURES
        or -(-size // WORD_BITS) % ACCESS_WORDS != 0
    ):
        return 0
    return -(-rows // TILE_ROWS) * TILE_ROWS * (words * WORD_BITS + STAGED_ROW_BYTES)


def _shared_bytes(words: int) -> int:
    """Shared memory of the one kernel: weights, packed rows, planes, and what does not grow."""
    pitch = -(-words // MMA_WORDS) * MMA_WORDS + PITCH_SPARE
    weights, rows = KERNEL_FEATURES * pitch * WORD_BYTES, KERNEL_ROWS * words * WORD_BYTES
    return weights + rows + KERNEL_ROWS * ROW_BYTES + STATIC_BYTES
