"""Rows of a made-up graph drawn on the device that keeps them, equal for every number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bitgnn.bits import BitTensor
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.distributed.places import Places
from bitgnn.distributed.power_law import PowerLawGraph

BLOCK = 1 << 18
"""Rows that have a seed of their own."""
ROWS, FEATURES = 0, 1


def drawn_starts(graph: PowerLawGraph, ranks: int) -> tuple[int, ...]:
    """First row of each rank: equal numbers of rows, whose edges are about equal, too."""
    return tuple(rank * graph.num_nodes // ranks for rank in range(ranks + 1))


def drawn_rows(
    graph: PowerLawGraph, places: Places, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    r"""Row pointer and columns, int64, of each chunk of a rank.

    Row :math:`v` of rank :math:`r` of the power law has :math:`\lfloor E (F(r + 1) - F(r)) +
    u\rfloor` edges for a random :math:`u` and the distribution :math:`F` of the ends, from which
    each edge's source is drawn. Devices of one kind draw the same graph.
    """
    for chunk in range(places.chunks):
        parts = list(_drawn(graph, places, chunk, device))
        degrees, columns = (torch.cat(part) for part in zip(*parts, strict=True))
        rowptr = torch.zeros(len(degrees) + 1, dtype=torch.int64, device=device)
        torch.cumsum(degrees, 0, out=rowptr[1:])
        yield rowptr, columns


def _drawn(
    graph: PowerLawGraph, places: Places, chunk: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Degrees and columns of a chunk's rows, block by block."""
    empty = torch.empty(0, dtype=torch.int64, device=device)
    yield empty, empty
    for number, rows in _blocks(places, chunk):
        generator = _generator(graph, ROWS, number, device)
        begin = number * BLOCK
        nodes = torch.arange(begin, min(begin + BLOCK, graph.num_nodes), device=device)
        uniform = torch.rand(nodes.shape, generator=generator, device=device, dtype=torch.float64)
        wanted = graph.num_edges * graph.probability(nodes)
        degrees = (wanted + uniform).long()
        ends = degrees.cumsum(0)
        total = int(ends[-1])
        uniform = torch.rand(total, generator=generator, device=device, dtype=torch.float64)
        # Blocks are drawn whole: a part of one is the same for every number of ranks.
        first = int(ends[rows.start - 1]) if rows.start else 0
        last = int(ends[rows.stop - 1])
        yield degrees[rows], graph.nodes_at(uniform[first:last])


def drawn_bits(graph: PowerLawGraph, places: Places, device: torch.device) -> BitTensor | None:
    """Random bits of a rank's nodes, None for a graph without features."""
    size = graph.num_features
    if not size:
        return None
    words = torch.empty(places.rows, words_for(size), dtype=torch.int32, device=device)
    for chunk in range(places.chunks):
        at = places.own(chunk).start
        for number, rows in _blocks(places, chunk):
            generator = _generator(graph, FEATURES, number, device)
            shape = min(BLOCK, graph.num_nodes - number * BLOCK), words.size(1)
            drawn = torch.randint(
                -(2**31), 2**31, shape, generator=generator, device=device, dtype=torch.int32
            )
            if size % WORD_BITS:
                drawn[:, -1] &= (1 << size % WORD_BITS) - 1
            words[at : at + rows.stop - rows.start] = drawn[rows]
            at += rows.stop - rows.start
    return BitTensor._trusted(words, size)


def _blocks(places: Places, chunk: int) -> Iterator[tuple[int, slice]]:
    """Numbers of the blocks that a chunk's rows lie in, and which rows of the block they are."""
    own, start = places.own(chunk), places.starts[places.rank]
    begin, end = start + own.start, start + own.stop
    while begin < end:
        number = begin // BLOCK
        stop = min(end, (number + 1) * BLOCK)
        yield number, slice(begin - number * BLOCK, stop - number * BLOCK)
        begin = stop


def _generator(
    graph: PowerLawGraph, kind: int, number: int, device: torch.device
) -> torch.Generator:
    seed = (graph.seed * 2 + kind) << 32 | number
    return torch.Generator(device).manual_seed(seed % 2**63)
