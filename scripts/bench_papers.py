"""Times networks of images as the papers do, one image, sizes and depths: a JSON record."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bench.command import exits_with_status, parse, run_benchmark
from bench.networks.papers import cpu_paper_cases, paper_cases
from bench.tables.networks import bnn_table
from bitgnn.measure.timing import Clock

REPEAT_SECONDS = {"cpu": None, "cuda": 4e-3}


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status is 1 where a result is wrong or a case fails."""
    names = {"cpu": "papers_cpu", "cuda": "papers_cuda"}
    arguments = parse("Times networks of images as the papers do.", names, argv)
    torch.backends.cudnn.benchmark = True
    cases = list(cpu_paper_cases() if arguments.device == "cpu" else paper_cases())
    if arguments.quick:
        cases = cases[:1]
    clock = Clock(arguments.device, REPEAT_SECONDS[arguments.device])
    return run_benchmark(arguments, cases, bnn_table, clock=clock)


if __name__ == "__main__":
    raise SystemExit(main())
