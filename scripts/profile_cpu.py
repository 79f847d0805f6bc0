"""Sets CPU figures against the machine's own rates: a JSON record."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from bench.ceilings import Ceilings
from bench.command import parse, record
from bench.entry import exits_with_status, report_left_out, save_record
from bench.graphs import Graph, load_flickr, power_law_graph
from bench.models.profile import GRAPHS, model_profiles
from bench.operators import cpu
from bench.operators.profile import bmm_profile, bspmm_profile, rates
from bench.tables.documents import profile_table
from bench.tasks import QUICK_GRAPH, NodeTask, load_task
from bitgnn.data import DataError


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Sets CPU figures against the machine's own rates; the exit status."""
    arguments = parse("Profiles the CPU operators against the machine.", "profile_cpu", argv)
    threads, options = arguments.threads, {"repeats": arguments.repeats}
    ceilings = Ceilings()
    sizes = cpu.QUICK if arguments.quick else cpu.Sizes()
    tall, wide, narrow = sizes.tall, sizes.wide, sizes.narrow
    torch.manual_seed(cpu.SEED)
    figures = [
        bmm_profile(ceilings, shape, threads, **options)
        for shape in ((tall, narrow, wide), (tall, wide, narrow))
    ]
    skipped: list[dict[str, str]] = []
    for graph in _profile_graphs(arguments.quick, arguments.data_root, skipped):
        figures.append(bspmm_profile(ceilings, graph, threads, **options))
    for key, task in _profile_tasks(arguments.quick, arguments.data_root, skipped):
        print(f"{task.name} ...", file=sys.stderr, flush=True)
        figures += model_profiles(ceilings, key, task, threads, **options)
    found = record(
        "profile_cpu",
        arguments,
        rates=rates(ceilings, threads, **options),
        figures=figures,
        skipped=skipped,
    )
    table = profile_table(found)
    save_record(arguments.output, found)
    print(f"\n{table}\nwritten: {arguments.output}")
    return report_left_out(found)


def _profile_graphs(
    quick: bool, data_root: Path | None, skipped: list[dict[str, str]]
) -> list[Graph]:
    """Flickr's structure where it is, else its reason among the ``skipped``."""
    if quick:
        return [power_law_graph(1000, 20_000, exponent=2.5, seed=0)]
    try:
        return [load_flickr(data_root)]
    except DataError as error:
        skipped.append({"name": "Flickr", "reason": str(error)})
        return []


def _profile_tasks(
    quick: bool, data_root: Path | None, skipped: list[dict[str, str]]
) -> Iterator[tuple[str, NodeTask]]:
    """The graphs of whole models by key, one at a time; the ``skipped`` are not there."""
    for key in (QUICK_GRAPH,) if quick else GRAPHS:
        try:
            yield key, load_task(key, "cpu", data_root)
        except DataError as error:
            skipped.append({"name": key, "reason": str(error)})


if __name__ == "__main__":
    raise SystemExit(main())
