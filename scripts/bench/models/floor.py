"""Least time of a frozen forward: bytes that must move and rows that must be gathered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from bench import ceilings as cpu_ceilings
from bitgnn.inference import FrozenModel, PreparedGraph
from bitgnn.measure.timing import Clock

WORD_BYTES = 4
WORD_BITS = 32
INT8_FEATURES = 127
"""A product of so many signs at most fits 8 bits."""
CACHE_LINE_BYTES = 64
MEASURED_BYTES = 2**28
REPEATS = 7


class Rates(Protocol):
    """Best rates of a machine, such as :class:`bench.cuda_ceilings.Ceilings`."""

    @property
    def launch_seconds(self) -> float:
        """Time of a launch that does nothing."""

    def memory_seconds(self, read: float, written: float) -> float:
        """Time to move bytes."""

    def gather_seconds(self, edges: int, nodes: int, row_bytes: float) -> float:
        """Time to gather a row of a table of ``nodes`` rows for each edge."""


class CpuRates:
    """Rates of the CPU, measured for tables of the sizes asked for."""

    launch_seconds = 0.0

    def __init__(self, ceilings: cpu_ceilings.Ceilings, threads: int) -> None:
        self._ceilings = ceilings
        self._threads = threads
        self._gathers: dict[int, float] = {}
        # Reads and writes alike: results of these models are small beside what is read.
        words = torch.zeros(MEASURED_BYTES // WORD_BYTES, dtype=torch.int32)
        self.read_rate = words.nbytes / _fastest(ceilings.read(threads, words))

    def memory_seconds(self, read: float, written: float) -> float:
        """Time to move bytes to or from memory, both at the rate of reading."""
        return (read + written) / self.read_rate

    def gather_seconds(self, edges: int, nodes: int, row_bytes: float) -> float:
        """Time of random rows, one cache line each or more, from a table of this many lines."""
        if edges == 0:
            return 0.0
        if nodes not in self._gathers:
            self._gathers[nodes] = self._measure(nodes)
        return edges * max(1.0, row_bytes / CACHE_LINE_BYTES) * self._gathers[nodes]

    def _measure(self, nodes: int) -> float:
        count = 2**20
        generator = torch.Generator().manual_seed(0)
        indices = torch.randint(nodes, (count,), dtype=torch.int32, generator=generator)
        table = torch.zeros(nodes, 4, dtype=torch.int32)
        return _fastest(self._ceilings.gather(self._threads, indices, table)) / count


def _fastest(work: cpu_ceilings.Repeated) -> float:
    """Seconds of one turn: a ceiling is what was reached at best."""
    clock = Clock("cpu")
    return min(clock.elapsed(work) for _ in range(REPEATS)) / work.times


@dataclass(frozen=True)
class Aggregation:
    """Rows and bytes that one aggregation of a network must touch.

    Attributes:
        edges: rows gathered.
        nodes: rows of the table.
        row_bytes: of one row of the table, in the narrowest exact form.
        graph_bytes: row pointers, indices and factors, each read once.
    """

    edges: int
    nodes: int
    row_bytes: float
    graph_bytes: int


@dataclass(frozen=True)
class Floor:
    """Least time of a forward and what it consists of.

    Attributes:
        seconds: of all together, with one launch.
        bytes: features as given, weights, graph and gathered tables, each once, and scores.
        bytes_seconds: time to move them.
        gathered_bytes: rows gathered, once an edge.
        gather_seconds: time of these.
        launch_seconds: of an empty kernel.
    """

    seconds: float
    bytes: float
    bytes_seconds: float
    gathered_bytes: float
    gather_seconds: float
    launch_seconds: float


def aggregations(
    model: FrozenModel, widths: Sequence[int], num_nodes: int, graph: Any
) -> list[Aggregation]:
    """The aggregations of a network whose layers transform first, one a layer.

    A layer on bits gathers packed rows; one on floats gathers sums of products of signs, which are
    integers, and the scale of each row where there is one.
    """
    graphs = graph.adjacencies if isinstance(graph, PreparedGraph) else (graph,)
    found = []
    for i, letters in enumerate(model.letters):
        product, _, aggregation = letters.partition("+")
        adjacency = graphs[min(i, len(graphs) - 1)]
        if aggregation[0] == "B":
            row_bytes = float(WORD_BYTES * -(-widths[i + 1] // WORD_BITS))
        else:
            row_bytes = float(widths[i + 1] * (1 if widths[i] <= INT8_FEATURES else 2))
            row_bytes += WORD_BYTES * (product[0] == "F")
        found.append(Aggregation(adjacency.nnz, num_nodes, row_bytes, adjacency.nbytes))
    return found


def floor(
    features_bytes: int,
    weights_bytes: int,
    output_bytes: int,
    found: Sequence[Aggregation],
    rates: Rates,
) -> Floor:
    """Least time of a forward by the machine's rates.

    Every table between layers is written once and read once; an aggregation takes as long as its
    bytes or its gathers, whichever is longer.
    """
    first = rates.memory_seconds(features_bytes + weights_bytes, output_bytes)
    seconds, moved, gather_seconds, gathered = rates.launch_seconds + first, first, 0.0, 0.0
    total = float(features_bytes + weights_bytes + output_bytes)
    for part in found:
        table = part.nodes * part.row_bytes
        memory = rates.memory_seconds(part.graph_bytes + table, table)
        gather = rates.gather_seconds(part.edges, part.nodes, part.row_bytes)
        seconds += max(memory, gather)
        moved += memory
        gather_seconds += gather
        gathered += part.edges * part.row_bytes
        total += part.graph_bytes + 2 * table
    return Floor(seconds, total, moved, gathered, gather_seconds, rates.launch_seconds)
