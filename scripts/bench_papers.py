"""Times what the papers time and no other benchmark has, in the papers' sizes: a JSON record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch

from bench.bwta.papers import paper_products
from bench.cases import Case
from bench.command import exits_with_status, parse, run_benchmark
from bench.models.inductive import inductive_cases
from bench.networks.bincnn import bincnn_cases
from bench.networks.papers import cpu_paper_cases, paper_cases
from bench.operators.sweeps import sweep_cases
from bench.tables.networks import bnn_table
from bitgnn.measure.timing import Clock

REPEAT_SECONDS = {"cpu": None, "cuda": 4e-3}


def cases_of(arguments: Any) -> Iterator[Case]:
    """Networks of images, BinCNN's layers, products, graphs, and on a GPU those of BWTA."""
    device, quick = arguments.device, arguments.quick
    networks = cpu_paper_cases() if device == "cpu" else paper_cases()
    graphs = inductive_cases(device, arguments.data_root, quick)
    parts = [networks, bincnn_cases(device), sweep_cases(device, quick), graphs]
    if device == "cuda":
        parts.append(paper_products(quick))
    return chain(*parts)


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status is 1 where a result is wrong or a case fails."""
    names = {"cpu": "papers_cpu", "cuda": "papers_cuda"}
    arguments = parse("Times what the papers time, in their sizes.", names, argv)
    torch.backends.cudnn.benchmark = True
    clock = Clock(arguments.device, REPEAT_SECONDS[arguments.device])
    return run_benchmark(arguments, cases_of(arguments), bnn_table, clock=clock)


if __name__ == "__main__":
    raise SystemExit(main())
