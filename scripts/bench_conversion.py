"""Times the conversion of a float model to a frozen binary one: a JSON record."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch_geometric.nn
from rich.progress import track
from torch import Tensor, nn

from bench.command import parse, record
from bench.entry import exits_with_status, save_record
from bench.graphs import power_law_graph
from bench.tables.documents import conversion_table
from bitgnn.bits import BitAdjacency
from bitgnn.convert import binarize, freeze

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
    """Do the stages one after the other, stopping behind each."""
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


def measure(name: str, edge_index: Tensor, num_nodes: int, repeats: int) -> dict[str, Any]:
    """Times every stage of a conversion.

    Returns:
        Seconds of each stage and repeat, of the whole, and its median.
    """
    torch.manual_seed(SEED)
    kind = getattr(torch_geometric.nn.models, name)
    # Without the ReLU, which binary layers have no use for.
    model = kind(FEATURES, HIDDEN, LAYERS, CLASSES, act=None).eval()
    seconds: dict[str, list[float]] = {stage: [] for stage in STAGES}
    for _ in range(repeats):
        start = time.perf_counter()
        stages = _stages(model, edge_index, num_nodes)
        for stage in STAGES:
            next(stages)
            now = time.perf_counter()
            seconds[stage].append(now - start)
            start = now
    whole = [sum(parts) for parts in zip(*seconds.values(), strict=True)]
    return {
        "name": f"{LAYERS}-layer {name}, {num_nodes} nodes, {edge_index.size(1)} edges (synthetic)",
        "goal_seconds": GOAL_SECONDS,
        "median": statistics.median(whole),
        "reached": statistics.median(whole) <= GOAL_SECONDS,
        "stages": seconds,
        "seconds": whole,
    }


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the conversion benchmark; the exit status."""
    arguments = parse("Times the conversion of a float model.", "conversion", argv)
    nodes, edges = (QUICK_NODES, QUICK_EDGES) if arguments.quick else (NUM_NODES, NUM_EDGES)
    edge_index = distinct_edges(nodes, edges)
    results = []
    for name in track(MODELS, description="conversion"):
        result = measure(name, edge_index, nodes, arguments.repeats)
        if arguments.quick:
            result["goal_seconds"] = result["reached"] = None
        results.append(result)
    found = record("conversion", arguments, results=results)
    save_record(arguments.output, found)
    print(f"\n{conversion_table(found)}\nwritten: {arguments.output}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
