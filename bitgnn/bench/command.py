"""Command lines of the benchmark scripts: arguments, run, and the three files each run leaves."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from bitgnn.bench import cuda_cases, cuda_graphs, cuda_operators, operators, profile, profile_models
from bitgnn.bench.cases import run_cases
from bitgnn.bench.ceilings import Ceilings, CeilingsError
from bitgnn.bench.cuda_ceilings import measure_ceilings
from bitgnn.bench.graphs import Graph, load_flickr, power_law_graph
from bitgnn.bench.models_tasks import QUICK_GRAPH, NodeTask, load_task
from bitgnn.bench.report import bar_chart, fraction_chart
from bitgnn.bench.tables import cuda_operators_table, operators_table, profile_table
from bitgnn.data import DataError
from bitgnn.measure.environment import environment
from bitgnn.measure.report import write_json
from bitgnn.measure.timing import MIN_REPEATS

RESULTS = Path("scripts") / "results"


def parse(
    description: str,
    name: str,
    argv: Sequence[str] | None,
    *,
    devices: bool = False,
    cpu_suffix: str = "",
    extend: Callable[[argparse.ArgumentParser], None] | None = None,
) -> argparse.Namespace:
    """The arguments that all benchmarks share, and those of ones that also run on CUDA.

    Args:
        description: of the command.
        name: of the output file.
        argv: arguments; None for those of the process.
        devices: the benchmark also runs on CUDA.
        cpu_suffix: ends the name of the output file on the CPU, as ``_cuda`` does on CUDA.
        extend: adds the benchmark's own arguments.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default 2)")
    parser.add_argument("--repeats", type=int, default=15, help="rounds (default 15, at least 7)")
    parser.add_argument(
        "--data-root",
        type=Path,
        default=os.environ.get("BITGNN_DATA"),
        help="folder with the data sets (default: environment variable BITGNN_DATA)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help=f"JSON file (default {RESULTS / name}{cpu_suffix}.json, on CUDA "
        f"{RESULTS / name}_cuda.json)",
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    if devices:
        parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
        parser.add_argument(
            "--ceilings",
            type=Path,
            help="compiled scripts/bench/ceilings.cu (default: nvcc does it)",
        )
    if extend is not None:
        extend(parser)
    arguments = parser.parse_args(argv)
    on_cuda = devices and arguments.device == "cuda"
    if on_cuda and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device")
    if arguments.output is None:
        arguments.output = RESULTS / f"{name}{'_cuda' if on_cuda else cpu_suffix}.json"
    if arguments.repeats < MIN_REPEATS:
        parser.error(f"--repeats must be at least {MIN_REPEATS}, got {arguments.repeats}")
    if arguments.threads < 1:
        parser.error(f"--threads must be at least 1, got {arguments.threads}")
    torch.set_num_threads(arguments.threads)
    return arguments


def record(name: str, arguments: argparse.Namespace, **body: Any) -> dict[str, Any]:
    """What a benchmark found together with what it ran on and how; quick runs have no goals."""
    if arguments.quick:
        for entry in [*body.get("results", []), *body.get("memory", [])]:
            for figure in ("target", "goal", "reached"):
                if figure in entry:
                    entry[figure] = None
    settings = {
        "threads": arguments.threads,
        "repeats": arguments.repeats,
        "quick": arguments.quick,
    }
    return {"benchmark": name, "environment": environment(), "settings": settings, **body}


def save(found: dict[str, Any], table: str, output: Path, title: str) -> None:
    """Writes the record, its table and its chart side by side and prints the table.

    Args:
        found: From :func:`record`.
        table: Its Markdown.
        output: The JSON file; the others differ in the suffix, ``.md`` and ``.png``.
        title: Heading of the chart.
    """
    write_json(output, found)
    output.with_suffix(".md").write_text(table, encoding="utf-8")
    results = found["results"]
    bar_chart(
        output.with_suffix(".png"),
        [f"{result['group']}: {result['name']}" for result in results],
        [result["ratio"] for result in results],
        [result["target"] for result in results],
        title,
    )
    print(f"\n{table}\nwritten: {output} and its .md and .png")


def operators_main(argv: Sequence[str] | None = None) -> int:
    """Runs the operator benchmark; the exit status."""
    arguments = parse("Times bitgnn's operators against torch.", "ops", argv, devices=True)
    if arguments.device == "cuda":
        return _cuda_operators(arguments)
    sizes = operators.QUICK if arguments.quick else operators.Sizes()
    body = run_cases(operators.cases(sizes, arguments.data_root), repeats=arguments.repeats)
    found = record("ops", arguments, **body)
    title = f"Operators, {arguments.threads} threads"
    save(found, operators_table(found), arguments.output, title)
    return 0


def _cuda_operators(arguments: argparse.Namespace) -> int:
    """Ceilings, then every case against them; what was done is on disk after each group."""
    ceilings = measure_ceilings(arguments.ceilings)
    sizes = cuda_operators.QUICK if arguments.quick else cuda_operators.Sizes()
    body: dict[str, list[Any]] = {"results": [], "skipped": []}
    for cases in (
        cuda_operators.dense_cases(sizes, ceilings),
        cuda_graphs.graph_cases(ceilings, arguments.data_root, arguments.quick),
    ):
        done = run_cases(
            cases,
            run=cuda_cases.run_case,
            describe=cuda_cases.describe,
            repeats=arguments.repeats,
        )
        for key, entries in done.items():
            body[key] += entries
        found = record("ops_cuda", arguments, **body, ceilings=ceilings.entries)
        write_json(arguments.output, found)
    table = cuda_operators_table(found)
    arguments.output.with_suffix(".md").write_text(table, encoding="utf-8")
    fraction_chart(
        arguments.output.with_suffix(".png"),
        [
            (f"{r['group']}: {r['name']}", r["ceiling_fraction"], r["binds"])
            for r in found["results"]
            if r["ceiling_fraction"] is not None
        ],
        f"Measured rate over ceiling measured in the same run, {found['environment']['gpu']}",
    )
    print(f"\n{table}\nwritten: {arguments.output} and its .md and .png")
    return 0


def profile_main(argv: Sequence[str] | None = None) -> int:
    """Sets CPU figures against the machine's own rates; the exit status."""
    arguments = parse("Profiles the CPU operators against the machine.", "profile_cpu", argv)
    threads, options = arguments.threads, {"repeats": arguments.repeats}
    try:
        ceilings = Ceilings()
    except CeilingsError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    sizes = operators.QUICK if arguments.quick else operators.Sizes()
    tall, wide, narrow = sizes.tall, sizes.wide, sizes.narrow
    torch.manual_seed(operators.SEED)
    figures = [
        profile.bmm_profile(ceilings, shape, threads, **options)
        for shape in ((tall, narrow, wide), (tall, wide, narrow))
    ]
    skipped: list[dict[str, str]] = []
    for graph in _profile_graphs(arguments.quick, arguments.data_root, skipped):
        figures.append(profile.bspmm_profile(ceilings, graph, threads, **options))
    for key, task in _profile_tasks(arguments.quick, arguments.data_root, skipped):
        print(f"{task.name} ...", file=sys.stderr, flush=True)
        figures += profile_models.model_profiles(ceilings, key, task, threads, **options)
    rates = profile.rates(ceilings, threads, **options)
    found = record("profile_cpu", arguments, rates=rates, figures=figures, skipped=skipped)
    table = profile_table(found)
    write_json(arguments.output, found)
    print(f"\n{table}\nwritten: {arguments.output}")
    return 0


def _profile_graphs(
    quick: bool, data_root: Path | None, skipped: list[dict[str, str]]
) -> list[Graph]:
    """Flickr's structure where it is, else its reason among the ``skipped``."""
    if quick:
        return [power_law_graph(1000, 20_000, exponent=2.5, seed=0)]
    try:
        if data_root is None:
            raise FileNotFoundError("no data folder given")
        return [load_flickr(data_root)]
    except FileNotFoundError as error:
        skipped.append({"name": "Flickr", "reason": str(error)})
        return []


def _profile_tasks(
    quick: bool, data_root: Path | None, skipped: list[dict[str, str]]
) -> Iterator[tuple[str, NodeTask]]:
    """The graphs of whole models by key, one at a time; the ``skipped`` are not there."""
    for key in (QUICK_GRAPH,) if quick else profile_models.GRAPHS:
        try:
            yield key, load_task(key, "cpu", data_root)
        except (DataError, FileNotFoundError) as error:
            skipped.append({"name": key, "reason": str(error)})
