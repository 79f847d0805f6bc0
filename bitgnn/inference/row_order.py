"""Memory of rows in the order of their degrees, as kernels find it in their scratch memory."""

from __future__ import annotations

__all__ = ["row_order_bytes"]

# As in csrc/cuda/aggregate_dense_order.cu.
ORDER_EDGES = 1 << 18
ORDER_BLOCKS, ORDER_THREADS = 128, 1024
DEGREE_CLASS_BYTES = 128 * 4
ROW_SPAN_BYTES = 16


def row_order_bytes(edges: int, nodes: int) -> int:
    """Bytes of the order of ``nodes`` rows with ``edges`` edges, and of the counts that give it."""
    if edges < ORDER_EDGES:
        return 0
    blocks = min(-(-nodes // ORDER_THREADS), ORDER_BLOCKS)
    return blocks * DEGREE_CLASS_BYTES + nodes * ROW_SPAN_BYTES
