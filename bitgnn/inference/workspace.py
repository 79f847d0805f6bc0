"""Scratch memory that kernels take inside of one call, counted from shapes as they choose it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bitgnn.bits import BitAdjacency, BlockedAdjacency
from bitgnn.inference.joint_workspace import is_joined, staged_bytes
from bitgnn.inference.narrow_workspace import (
    csr_bytes,
    is_narrow,
    narrow_bytes,
    pair_of,
    unheld_by_narrow,
    without_head,
)
from bitgnn.inference.program import Register, Step
from bitgnn.inference.row_order import row_order_bytes
from bitgnn.inference.steps.linear_pair import FRAGMENT, MOST_NEIGHBOURS

__all__ = ["unheld_registers", "workspace_bytes"]

WORD_BITS, WORD_BYTES = 32, 4
FLOAT_BYTES, CLASS_BYTES = 4, 8

# As in csrc/bspmm/cuda/bits.cuh: rows of odd lengths, copied to whole accesses.
ACCESS_WORDS = 4
UNPADDED_WORDS = 2
PAD_USES = 4
PAD_READS = 1 << 21

# As in csrc/bspmm/cuda/sliced.cuh: partial counts of column slices.
SLICE_WORDS = 4
PLACE_BYTES = 32

# As in csrc/bspmm/cuda/floats/dense.cu: copies of float rows in pieces of fragments.
FRAGMENT_BYTES = 16
COPY_USES = 8
REUSED_USES = 16
FEW_LANES, SOME_LANES, MANY_LANES, MOST_LANES = 4, 8, 12, 16

# As in csrc/bmm/cuda/route.cu: products for the warpgroup kernel, which counts its operands' bits.
WGMMA_CAPABILITY = (9, 0)
WGMMA_FEATURES, WGMMA_OUTPUTS, WGMMA_TILES = 1024, 256, 64
WGMMA_TILE_ROWS, WGMMA_TILE_COLUMNS = 128, 256


def workspace_bytes(
    group: Sequence[Step],
    registers: Mapping[int, Register],
    graphs: Sequence[Any],
    num_nodes: int,
    device: torch.device,
) -> int:
    """Bytes that the kernels of one call hold beside its inputs, results and inner values.

    Args:
        group: the steps that the call does.
        registers: what the program's registers hold.
        graphs: adjacencies by number.
        num_nodes: rows of the features.
        device: where it runs; most kernels of the CPU use the threads' own small buffers.
    """
    body = without_head(group)
    needed = _workspace(body, registers, graphs, num_nodes, device)
    if body is group or body[-1].outputs[0] in unheld_registers(group, graphs, device):
        return needed
    # Torch makes the head once the kernels have given back what they took.
    made = registers[group[-1].outputs[0]]
    row_bytes = CLASS_BYTES if made.form == "classes" else FLOAT_BYTES * (made.size or 0)
    return max(0, needed - num_nodes * row_bytes)


def _workspace(
    group: Sequence[Step],
    registers: Mapping[int, Register],
    graphs: Sequence[Any],
    num_nodes: int,
    device: torch.device,
) -> int:
    """The same for a call without a head."""
    if is_narrow(group, graphs, device):
        _, aggregation = pair_of(group)
        assert aggregation.graph is not None, "Program.check requires it"
        return narrow_bytes(group, graphs[aggregation.graph], num_nodes, device)
    if _is_linear_pair(group, graphs):
        width = -(-group[0].attributes["out"] // FRAGMENT) * FRAGMENT
        return num_nodes * 2 * width * FLOAT_BYTES
    needed = [0]
    for step in group:
        if step.kind.startswith("bspmm_t") and step.graph is not None:
            needed.append(_ternary_sums(step, graphs[step.graph], num_nodes, device))
        elif step.kind.startswith("bmm_t"):
            needed.append(_ternary_product(step, num_nodes, device))
        elif device.type != "cuda":
            continue
        elif step.kind.startswith("bspmm_") and step.graph is not None:
            read = registers[step.inputs[0]]
            needed.append(_aggregation(step, read, graphs[step.graph], num_nodes))
        elif step.kind.startswith("bmm_") and step is group[0]:
            needed.append(_product(step, num_nodes, device))
    if device.type == "cuda" and is_joined(group, graphs, device):
        needed.append(staged_bytes(group, graphs))
    # One after the other: what the first took is back before the second one asks.
    return max(needed) + csr_bytes(group, graphs)


def unheld_registers(
    group: Sequence[Step], graphs: Sequence[Any], device: torch.device
) -> frozenset[int]:
    """Registers inside a call that its kernels never hold in their own form.

    Products that become narrow integers, sums that a product joins at once, and both results of a
    pair of linear maps, which lie side by side.

    Args:
        group: the steps that the call does.
        graphs: adjacencies by number.
        device: where it runs.
    """
    if is_narrow(group, graphs, device):
        return unheld_by_narrow(group, graphs, device)
    if _is_linear_pair(group, graphs):
        return frozenset(register for step in group[:-1] for register in step.outputs)
    return frozenset(group[-2].outputs) if is_joined(group, graphs, device) else frozenset()


def _is_linear_pair(group: Sequence[Step], graphs: Sequence[Any]) -> bool:
    """Whether one product makes what a call aggregates and what it adds to the sums."""
    if [step.kind for step in group] != ["bits_linear", "bspmm_fbf", "bits_linear"]:
        return False
    assert group[1].graph is not None, "Program.check requires it"
    adjacency = graphs[group[1].graph]
    return adjacency.col is None and adjacency.nnz <= MOST_NEIGHBOURS * adjacency.shape[0]


def _aggregation(step: Step, read: Register, adjacency: Any, num_nodes: int) -> int:
    size = read.size or 0
    if read.form == "bits" and isinstance(adjacency, BitAdjacency | BlockedAdjacency):
        return _bit_sums(-(-size // WORD_BITS), adjacency, num_nodes)
    order = row_order_bytes(adjacency.nnz, num_nodes)
    if read.form == "bits":  # with float edge values, gathered where they lie
        return order
    has_values = not isinstance(adjacency, BitAdjacency | BlockedAdjacency)
    has_factors = not has_values and adjacency.col is not None
    return order + _copied_floats(size, adjacency.nnz, num_nodes, has_factors, has_values)


def _bit_sums(words: int, adjacency: BitAdjacency | BlockedAdjacency, num_nodes: int) -> int:
    layout = adjacency.planned_layout(words)
    if layout == "frdc":
        return 0
    if layout == "sliced":
        assert isinstance(adjacency, BitAdjacency), "no other adjacency has slices"
        return -(-words // SLICE_WORDS) * adjacency.sliced().places * PLACE_BYTES
    return _padded_words(words, adjacency.nnz, num_nodes)


def _ternary_sums(
    step: Step, adjacency: BitAdjacency | BlockedAdjacency, num_nodes: int, device: torch.device
) -> int:
    size = step.attributes["size"]
    words = -(-size // WORD_BITS)
    factors = num_nodes * FLOAT_BYTES
    if adjacency.planned_layout(2 * words) == "csr":
        # Each plane is a row of its own there, each edge one of both.
        padded = _padded_words(words, 2 * adjacency.nnz, 2 * num_nodes)
        return factors + (padded if device.type == "cuda" else 0)
    # The sums of both planes in floats, and their difference behind them.
    sums = num_nodes * 2 * words * WORD_BITS * FLOAT_BYTES
    partial = _bit_sums(2 * words, adjacency, num_nodes) if device.type == "cuda" else 0
    difference = num_nodes * size * FLOAT_BYTES if step.kind == "bspmm_tbb" else 0
    return sums + max(partial, difference + factors)


def _ternary_product(step: Step, num_nodes: int, device: torch.device) -> int:
    """Both planes and their counts; on a CPU the weights in the order that products read."""
    size, outputs = step.attributes["size"], step.attributes["out"]
    words = -(-size // WORD_BITS)
    packed = num_nodes * (2 * words + 1) * WORD_BYTES
    panels = -(-outputs // WORD_BITS) * WORD_BITS * words * WORD_BYTES
    return packed if device.type == "cuda" else packed + panels


def _padded_words(words: int, edges: int, nodes: int) -> int:
    """A copy of packed rows at a pitch of whole accesses."""
    pays = edges >= PAD_USES * nodes and edges * words >= PAD_READS
    if words <= UNPADDED_WORDS or words % ACCESS_WORDS == 0 or not pays:
        return 0
    return nodes * -(-words // ACCESS_WORDS) * ACCESS_WORDS * WORD_BYTES


def _copied_floats(size: int, edges: int, nodes: int, has_factors: bool, has_values: bool) -> int:
    """A copy of float rows, with their factors taken in or in aligned pieces."""
    width = FRAGMENT_BYTES // FLOAT_BYTES
    is_aligned = size % width == 0
    takes_factors = has_factors and _used(edges, nodes, REUSED_USES if is_aligned else COPY_USES)
    if not takes_factors and (is_aligned or not _used(edges, nodes, COPY_USES)):
        return 0
    fragments = -(-size // width)
    widest = SOME_LANES if takes_factors or not (has_factors or has_values) else MOST_LANES
    lanes = SOME_LANES
    if fragments <= FEW_LANES:
        lanes = FEW_LANES
    elif fragments > SOME_LANES and _used(edges, nodes, REUSED_USES):
        if fragments <= MANY_LANES:
            lanes = MANY_LANES
        elif fragments <= MOST_LANES or widest == MOST_LANES:
            lanes = MOST_LANES
    return -(-fragments // lanes) * nodes * lanes * FRAGMENT_BYTES


def _used(edges: int, nodes: int, uses: int) -> bool:
    return edges > 0 and edges >= uses * nodes


def _product(step: Step, num_nodes: int, device: torch.device) -> int:
    """Counts of set bits, and both operands padded where their rows are no whole accesses."""
    size, outputs = step.attributes["size"], step.attributes["out"]
    tiles = -(-num_nodes // WGMMA_TILE_ROWS) * -(-outputs // WGMMA_TILE_COLUMNS)
    if (
        torch.cuda.get_device_capability(device) != WGMMA_CAPABILITY
        or size < WGMMA_FEATURES
        or outputs < WGMMA_OUTPUTS
        or tiles < WGMMA_TILES
    ):
        return 0
    rows, words = num_nodes + outputs, -(-size // WORD_BITS)
    padded = 0 if words % ACCESS_WORDS == 0 else -(-words // ACCESS_WORDS) * ACCESS_WORDS
    return rows * (1 + padded) * WORD_BYTES
