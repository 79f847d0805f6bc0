"""The constants and the shares of a graph that a cooperative kernel copies to shared memory.

csrc/whole_model/cooperative.h says how they are laid out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.inference.cooperative_stages import OUTPUTS, SOURCES, Stage
from bitgnn.inference.wide_rows import is_wide
from bitgnn.ops.limits import integer_limits
from bitgnn.ops.reference.pack import words_for

__all__ = ["GraphShares", "StageTables", "share_graph", "state_words", "tables_of"]

NOTHING = -1
UNIT = 4
"""Words that every part of the image is rounded up to."""
COLUMNS = 16
"""Columns of a product are rounded up to so many, rows of a block too."""
STEP_WORDS = 8
"""Words of a step of a product."""
PIECE_WORDS = 3
STATE_HEAD = 4
MAX_BYTE_FEATURES = 255
"""Features up to which the half of a product fits a byte."""
NEVER = 2**31 - 1


@dataclass(frozen=True)
class StageTables:
    """What the operator takes of the stages.

    Attributes:
        image: int32 constants.
        numbers: sizes and offsets, 15 for each stage.
    """

    image: Tensor
    numbers: list[int]


def round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def tables_of(stages: Sequence[Stage], device: torch.device, often: bool = False) -> StageTables:
    """Lay the stages' constants out.

    Args:
        stages: as :func:`~bitgnn.inference.cooperative_stages.find_stages` gives them.
        device: where the constants go.
        often: whether the graph's rows are read often, see
            :func:`~bitgnn.inference.wide_rows.is_wide`.

    Returns:
        The tables.
    """
    parts: list[Tensor] = []
    length = 0

    def place(values: Tensor | None) -> int:
        nonlocal length
        if values is None:
            return NOTHING
        flat = values.detach().to(device).contiguous().flatten()
        words = flat if flat.dtype == torch.int32 else flat.float().view(torch.int32)
        parts.append(functional.pad(words, (0, -len(words) % UNIT)))
        start, length = length, length + len(parts[-1])
        return start

    numbers: list[int] = []
    for stage in stages:
        own = stage.tensors
        weights = terms = inversions = None
        if stage.output != "result":
            weight = own["weight"]
            weights = _weights(weight, stage.size)
            counts = (BitTensor(weight, stage.size).to_float() > 0).sum(1)
            terms = _padded(stage.size - 2 * counts, stage.out, 0)
        if stage.output == "bits":
            inverted = torch.zeros_like(counts, dtype=torch.bool)
            if not stage.scaled:
                limits, inverted = _limits(stage, counts)
                terms = _padded(limits, stage.out, NEVER)
            if "product_flip" in own:
                inverted = inverted ^ own["product_flip"]
            inversions = _inversions(inverted)
        numbers += [SOURCES.index(stage.source), OUTPUTS.index(stage.output)]
        numbers += [stage.size, stage.out, int(stage.scaled)]
        numbers += [place(part) for part in (weights, terms, inversions)]
        numbers += [place(part) for part in _pack_terms(stage)]
        numbers += [place(own.get(name)) for name in ("scale", "bias")]
        compared = ("product_scale", "product_threshold") if stage.scaled else ()
        numbers += [place(own.get(name)) for name in compared] or [NOTHING, NOTHING]
        numbers.append(int(stage.output == "integers" and is_wide(stage.out, stage.size, often)))
    return StageTables(torch.cat(parts), numbers)


def _pack_terms(stage: Stage) -> tuple[Tensor | None, Tensor | None]:
    """Threshold and gain of what is binarised: both or none of them where a scale is measured."""
    threshold, gain = stage.tensors.get("threshold"), stage.tensors.get("gain")
    given = threshold if gain is None else gain
    if given is None or not (
        stage.source == "integers" or (stage.source == "floats" and stage.scaled)
    ):
        return threshold, None
    return (
        torch.zeros_like(given) if threshold is None else threshold,
        torch.ones_like(given) if gain is None else gain,
    )


def _weights(weight: Tensor, size: int) -> Tensor:
    """Rows of weights and, last, of their valid bits, at the pitch of the kernel's tiles."""
    out, words = weight.shape
    pitch = (round_up(words, STEP_WORDS) // STEP_WORDS * 2 | 1) * UNIT
    table = weight.new_zeros(round_up(out, COLUMNS) + 1, pitch)
    table[:out, :words] = weight
    table[-1, :words] = -1
    if size % 32:
        table[-1, words - 1] = 2 ** (size % 32) - 1
    return table


def _padded(values: Tensor, out: int, fill: int) -> Tensor:
    padded = values.new_full((round_up(out, COLUMNS),), fill, dtype=torch.int32)
    padded[:out] = values
    return padded


def _limits(stage: Stage, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Limits of the signs' comparison, and where it is turned round.

    With r and c set bits in row and column the product is ``size - 2 r - 2 c + 4 popc(a & b)``. It
    reaches ``least`` exactly where ``2 popc(a & b) - r >= (least - size + 1) // 2 + c``.
    """
    size, own = stage.size, stage.tensors
    threshold = own.get("product_threshold")
    inverted = torch.zeros_like(counts, dtype=torch.bool)
    least = torch.zeros_like(counts)
    if threshold is not None:
        scale = own.get("product_scale", torch.ones_like(threshold))
        least, inverted = integer_limits(
            lambda dot: scale * dot.float() >= threshold, size, threshold
        )
    return torch.div(least - size + 1, 2, rounding_mode="floor") + counts, inverted


def _inversions(inverted: Tensor) -> Tensor:
    """Bits of the columns in words, 16 a half word."""
    padded = functional.pad(inverted.float() * 2 - 1, (0, -len(inverted) % 32), value=-1.0)
    return BitTensor.from_float(padded.unsqueeze(0)).words.flatten()


def state_words(stages: Sequence[Stage], rows: int) -> int:
    """Words that blocks hand to each other, and those that number the calls."""
    words = STATE_HEAD
    for stage in stages:
        if stage.output == "bits":
            row = words_for(stage.out)
        elif stage.output == "integers":
            per_word = 4 if stage.size <= MAX_BYTE_FEATURES else 2
            row = -(-stage.out // per_word) + 1
        else:
            continue
        words += rows * UNIT * -(-row // PIECE_WORDS)
    return words


@dataclass(frozen=True)
class GraphShares:
    """What each block has of a graph.

    Attributes:
        slices: int32 ``[blocks, words]``.
        most_degree: edges of the longest row.
    """

    slices: Tensor
    most_degree: int


def share_graph(adjacency: BitAdjacency, blocks: int) -> GraphShares:
    """Cut a graph into neighbouring nodes of as many blocks, the first ones with one node more.

    Waits for the device once, to learn the largest share.

    Args:
        adjacency: N by N in CSR.
        blocks: 1 to N.

    Returns:
        The shares.

    Raises:
        ValueError: the adjacency is not square.
    """
    rowptr, indices = adjacency.rowptr.long(), adjacency.indices
    rows, device = len(rowptr) - 1, indices.device
    if adjacency.num_cols != rows:
        raise ValueError(
            f"CooperativeExecutor: adjacency must be square, got [{rows}, {adjacency.num_cols}]"
        )
    share, more = divmod(rows, blocks)
    number = torch.arange(blocks + 1, device=device)
    starts = number * share + number.clamp(max=more)
    sizes, edge_starts = starts.diff(), rowptr[starts]
    edges = edge_starts.diff()
    most_edges, most_degree = torch.stack([edges.max(), rowptr.diff().max()]).tolist()
    row_capacity = round_up(share + (more > 0), COLUMNS)
    edge_capacity = round_up(most_edges, UNIT)
    factors = row_capacity + UNIT
    slices = indices.new_zeros(blocks, 3 * row_capacity + UNIT + edge_capacity)
    block = torch.repeat_interleave(number[:-1], sizes, output_size=rows)
    place = torch.arange(rows, device=device) - starts[block]
    slices[block, place] = (rowptr[:-1] - edge_starts[block]).int()
    slices[number[:-1], sizes] = edges.int()
    ones = torch.ones(rows, device=device)
    for offset, factor in ((0, adjacency.row_scale), (row_capacity, adjacency.col_scale)):
        values = ones if factor is None else factor.contiguous()
        slices[block, factors + offset + place] = values.view(torch.int32)
    edge_block = torch.repeat_interleave(number[:-1], edges, output_size=len(indices))
    edge_place = torch.arange(len(indices), device=device) - edge_starts[edge_block]
    slices[edge_block, factors + 2 * row_capacity + edge_place] = indices
    return GraphShares(slices, most_degree)
