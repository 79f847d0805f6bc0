"""Sets CPU figures against the machine's own rates: a JSON record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from bench.cases import Record
from bench.ceilings import Ceilings
from bench.command import exits_with_status, finish, parse, record
from bench.graphs import Graph, load_flickr, power_law_graph
from bench.models.profile import GRAPHS, model_profiles
from bench.operators import cpu
from bench.operators.case import SEED
from bench.operators.profile import bmm_profile, bspmm_profile, rates
from bench.tables.operators import profile_table
from bench.tasks import QUICK_GRAPH, load_task
from bitgnn.data import DataError


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Sets CPU figures against the machine's own rates; the exit status."""
    names = {"cpu": "profile_cpu"}
    arguments = parse("Profiles the CPU operators against the machine.", names, argv)
    threads, options = arguments.threads, {"repeats": arguments.repeats}
    quick, root, ceilings = arguments.quick, arguments.data_root, Ceilings()
    sizes = cpu.QUICK if quick else cpu.Sizes()
    tall, wide, narrow = sizes.tall, sizes.wide, sizes.narrow
    torch.manual_seed(SEED)
    found = record(
        arguments, rates=rates(ceilings, threads, **options), figures=[], skipped=[], failed=[]
    )
    work: list[tuple[str, Callable[[], list[Record]]]] = [
        ("BMM", lambda: [bmm_profile(ceilings, (tall, narrow, wide), threads, **options)]),
        ("BMM", lambda: [bmm_profile(ceilings, (tall, wide, narrow), threads, **options)]),
        ("Flickr", lambda: [bspmm_profile(ceilings, _graph(quick, root), threads, **options)]),
    ]
    for key in (QUICK_GRAPH,) if quick else GRAPHS:
        load = partial(load_task, key, "cpu", root)
        work.append((key, partial(model_profiles, ceilings, key, load, threads, **options)))
    for name, measure in work:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            found["figures"] += measure()
        except DataError as error:
            found["skipped"].append({"name": name, "reason": str(error)})
    return finish(arguments.output, found, profile_table)


def _graph(quick: bool, data_root: Path | None) -> Graph:
    if quick:
        return power_law_graph(1000, 20_000, exponent=2.5, seed=0)
    return load_flickr(data_root)


if __name__ == "__main__":
    raise SystemExit(main())
