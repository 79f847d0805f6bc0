"""Times the conversion of a float model to a frozen binary one: a JSON record."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor, nn

from bench.command import exits_with_status, parse, run_benchmark
from bench.graphs import power_law_graph
from bench.tables.operators import conversion_table
from bitgnn.bits import BitAdjacency
from bitgnn.convert import binarize, freeze
from bitgnn.measure.report import format_seconds
from bitgnn.measure.timing import Clock

SEED = 0
NUM_NODES, NUM_EDGES = 100_000, 1_000_000
FEATURES, HIDDEN, CLASSES, LAYERS = 128, 256, 40, 3
QUICK_NODES, QUICK_EDGES = 500, 4_000
EXPONENT = 2.5
# Edges drawn for each one needed: some are drawn twice.
SPARE = 1.1
GOAL_SECONDS = 2.0
STAGES = ("binarize", "freeze", "prepare_graph", "FRDC tiles")
"""Everything between the float model and the first frozen forward, layouts of the CPU included."""

MODELS = ("GCN", "GraphSAGE")


def distinct_edges(num_nodes: int, num_edges: int) -> Tensor:
    """int64 ``[2, num_edges]``: a power-law graph, its edges distinct and in random order."""
    graph = power_law_graph(num_nodes, int(SPARE * num_edges), exponent=EXPONENT, seed=SEED)
    edge_index = graph.edge_index().unique(dim=1)
    generator = torch.Generator().manual_seed(SEED)
    return edge_index[:, torch.randperm(edge_index.size(1), generator=generator)[:num_edges]]


def _stages(model: nn.Module, edge_index: Tensor, num_nodes: int) -> Iterator[None]:
    """Run the stages one after the other, stopping after each."""
    binary = binarize(model, "bin")
    yield
    frozen = freeze(binary, check=False)
    yield
    adjacency = frozen.prepare_graph(edge_index, num_nodes)
    assert isinstance(adjacency, BitAdjacency)  # the layers of these models share one
    yield
    if adjacency.frdc() is None:
        raise ValueError("bench.conversion: edge_index must be free of duplicates for FRDC")
    yield


@dataclass(frozen=True)
class ConversionCase:
    """The conversion of one of PyG's models.

    Attributes:
        model: its class in ``torch_geometric.nn.models``.
        num_nodes: of the graph.
        edge_index: distinct edges.
    """

    model: str
    num_nodes: int
    edge_index: Tensor

    group = "conversion"

    @property
    def name(self) -> str:
        """Layers, model and graph."""
        edges = self.edge_index.size(1)
        return f"{LAYERS}-layer {self.model}, {self.num_nodes} nodes, {edges} edges (synthetic)"

    def run(self, clock: Clock, repeats: int) -> dict[str, Any]:
        """Seconds of each stage and repeat, of the whole, and its median."""
        torch.manual_seed(SEED)
        kind = getattr(torch_geometric.nn.models, self.model)
        # Without the ReLU, which binary layers have no use for.
        model = kind(FEATURES, HIDDEN, LAYERS, CLASSES, act=None).eval()
        seconds: dict[str, list[float]] = {stage: [] for stage in STAGES}
        for _ in range(repeats):
            stages = _stages(model, self.edge_index, self.num_nodes)
            for stage in STAGES:
                seconds[stage].append(clock.elapsed(partial(next, stages)))
        whole = [sum(parts) for parts in zip(*seconds.values(), strict=True)]
        return {
            "goal_seconds": GOAL_SECONDS,
            "median": statistics.median(whole),
            "reached": statistics.median(whole) <= GOAL_SECONDS,
            "stages": seconds,
            "seconds": whole,
        }


def describe(result: dict[str, Any]) -> str:
    """One line of a result for the terminal."""
    return f"{result['name']}: {format_seconds(result['median'])}"


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the conversion benchmark; the exit status."""
    names = {"cpu": "conversion"}
    arguments = parse("Times the conversion of a float model.", names, argv)
    nodes, edges = (QUICK_NODES, QUICK_EDGES) if arguments.quick else (NUM_NODES, NUM_EDGES)
    edge_index = distinct_edges(nodes, edges)
    cases = [ConversionCase(model, nodes, edge_index) for model in MODELS]
    return run_benchmark(arguments, cases, conversion_table, line=describe)


if __name__ == "__main__":
    raise SystemExit(main())
