"""Times samplers of neighbourhoods, with one thread and with more: a JSON record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch_geometric.data import Data

from bench.command import exits_with_status, parse, run_benchmark
from bench.graphs import REDDIT, heavy_tailed_graph
from bench.sampling import SamplingCase
from bench.tables.timings import sampling_table
from bench.tasks import SEED

GRAPHS = {
    # nodes, edges, largest in-degree
    "Flickr's size": (89_250, 899_756, 5_425),
    "a quarter of Reddit's size": tuple(size // 4 for size in REDDIT),
}
QUICK = {"tiny": (300, 1500, 50)}
FANOUTS = ((15, 10), (25, 10, 5))
NUM_SEEDS = 1024
WAYS = {
    "without replacement": {},
    "with replacement": {"replace": True},
    "disjoint": {"disjoint": True},
}


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark of samplers."""
    description = "Times this package's sampler beside those of pyg-lib and torch-sparse."
    arguments = parse(description, {"cpu": "sampling"}, argv)
    threads = sorted({1, arguments.threads})

    def cases() -> Iterator[SamplingCase]:
        for name, size in (QUICK if arguments.quick else GRAPHS).items():
            graph, seeds = _graph(*size)
            for fanouts in FANOUTS:
                for way, options in WAYS.items():
                    title = f"{name}, {list(fanouts)}, {way}"
                    yield SamplingCase(title, graph, seeds, fanouts, options, threads)

    return run_benchmark(arguments, cases(), sampling_table, line=_line)


def _graph(nodes: int, edges: int, degree: int) -> tuple[Data, torch.Tensor]:
    """A random graph, and the nodes that a batch begins with."""
    made = heavy_tailed_graph(nodes, edges, max_degree=degree, seed=SEED)
    seeds = torch.randperm(nodes, generator=torch.Generator().manual_seed(SEED))[:NUM_SEEDS]
    return Data(edge_index=made.edge_index(), num_nodes=nodes), seeds


def _line(result: dict[str, Any]) -> str:
    """Line of a case on the terminal."""
    rates = [f"{n} {c['edges_per_second'] / 1e6:.1f}" for n, c in result["contenders"].items()]
    return f"{result['name']}: million edges a second: {', '.join(rates)}"


if __name__ == "__main__":
    raise SystemExit(main())
