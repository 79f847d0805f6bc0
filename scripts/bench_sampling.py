"""Times samplers of neighbourhoods on a graph of Flickr's size: a JSON record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch_geometric.data import Data

from bench.command import exits_with_status, parse, run_benchmark
from bench.sampling import SamplingCase
from bench.tables.timings import sampling_table
from bench.tasks import QUICK_GRAPH, SEED, load_task

FANOUTS = (15, 10)
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
    arguments = parse(description, {"cpu": "sampling_cpu"}, argv)
    key = QUICK_GRAPH if arguments.quick else "flickr"
    task = load_task(key, "cpu", arguments.data_root)
    graph = Data(edge_index=task.edge_index, num_nodes=task.num_nodes)
    generator = torch.Generator().manual_seed(SEED)
    seeds = torch.randperm(task.num_nodes, generator=generator)[:NUM_SEEDS]

    def cases() -> Iterator[SamplingCase]:
        for name, options in WAYS.items():
            yield SamplingCase(name, graph, seeds, FANOUTS, options)

    return run_benchmark(arguments, cases(), sampling_table, line=_line, graph=task.name)


def _line(result: dict[str, Any]) -> str:
    """What the terminal shows of a case."""
    rates = [f"{n} {c['edges_per_second'] / 1e6:.1f}" for n, c in result["contenders"].items()]
    return f"{result['name']}: million edges a second: {', '.join(rates)}"


if __name__ == "__main__":
    raise SystemExit(main())
