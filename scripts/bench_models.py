"""Times whole frozen models against PyG's."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from bench.cases import Skipped
from bench.ceilings import Ceilings, CeilingsError
from bench.command import exits_with_status, parse, run_benchmark
from bench.cuda_ceilings import measure_ceilings
from bench.models.case import ModelCase, describe
from bench.models.floor import CpuRates, Rates
from bench.tables.models import models_table
from bench.tasks import MODELS, QUICK_GRAPH, load_task

GRAPHS = {
    "cpu": ("cora", "citeseer", "pubmed", "flickr", "reddit_eighth"),
    "cuda": ("cora", "citeseer", "pubmed", "flickr", "reddit"),
}


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the whole-model benchmark; the exit status is 1 where a model is wrong or fails."""
    names = {"cpu": "models_cpu", "cuda": "models_cuda"}
    arguments = parse("Times whole frozen models against PyG's.", names, argv)
    load = lru_cache(maxsize=1)(load_task)
    print("rates of the machine ...", file=sys.stderr, flush=True)
    ceilings, rates, problem = _rates(arguments)
    cases: list[ModelCase | Skipped] = [
        ModelCase(kind, graph, partial(load, graph, arguments.device, arguments.data_root), rates)
        for graph in ((QUICK_GRAPH,) if arguments.quick else GRAPHS[arguments.device])
        for kind in MODELS
    ]
    if problem is not None:
        cases.append(Skipped("models", "floor", problem))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
        return run_benchmark(arguments, cases, models_table, line=describe, ceilings=ceilings)


def _rates(arguments: Any) -> tuple[list[dict[str, Any]], Rates | None, str | None]:
    """Ceilings of the machine as a record and as rates, or why they are unknown."""
    try:
        if arguments.device == "cuda":
            measured = measure_ceilings(arguments.ceilings)
            return measured.entries, measured, None
        cpu = CpuRates(Ceilings(), arguments.threads)
    except (CeilingsError, FileNotFoundError, RuntimeError) as error:
        return [], None, str(error)
    return [{"name": "read", "unit": "byte", "rate": cpu.read_rate}], cpu, None


if __name__ == "__main__":
    raise SystemExit(main())
