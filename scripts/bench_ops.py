"""Times pack, BMM and BSpMM against torch: a JSON record."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from bench.command import exits_with_status, parse, run_benchmark
from bench.cuda_ceilings import measure_ceilings
from bench.operators import cpu, cuda, cuda_graphs
from bench.operators.case import describe
from bench.tables.operators import cases_table


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the operator benchmark; the exit status."""
    names = {"cpu": "ops", "cuda": "ops_cuda"}
    arguments = parse("Times bitgnn's operators against torch.", names, argv)
    quick, root = arguments.quick, arguments.data_root
    if arguments.device == "cpu":
        cases = cpu.cases(cpu.QUICK if quick else cpu.Sizes(), root)
        return run_benchmark(arguments, cases, cases_table, line=describe)
    ceilings = measure_ceilings(arguments.ceilings)
    every = itertools.chain(
        cuda.dense_cases(cuda.QUICK if quick else cuda.Sizes(), ceilings),
        cuda_graphs.graph_cases(ceilings, root, quick),
    )
    return run_benchmark(arguments, every, cases_table, line=describe, ceilings=ceilings.entries)


if __name__ == "__main__":
    raise SystemExit(main())
