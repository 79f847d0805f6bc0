"""Times frozen default networks against PyG's, and trains them in a plain loop with more seeds."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from bench.cases import describe as describe_case
from bench.command import exits_with_status, is_wanted, parse, run_benchmark, save_record
from bench.experiments import kept_runs, plain_loop
from bench.models.case import ModelCase, describe
from bench.models.defaults import (
    DENSE,
    FORM,
    LARGE,
    LAYERS,
    OWN_FEATURES,
    FirstProduct,
    default_networks,
    load_default,
    plain_case,
)
from bench.tables.defaults import default_table
from bench.tasks import QUICK_GRAPH
from bitgnn.measure.timing import Clock

FLOATS = "fp32"


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark of the default networks; the exit status is 1 where one is wrong."""
    names = {"cpu": "default_cpu", "cuda": "default_cuda"}
    arguments = parse("Times frozen default networks against PyG's.", names, argv, _options)
    earlier = _record(arguments)["trainings"] if arguments.resume else []
    for path in arguments.trainings:
        earlier += _of_interest(json.loads(path.read_text("utf-8"))["runs"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
        cases = tqdm(_cases(arguments), unit="case")
        status = run_benchmark(arguments, cases, default_table, line=_line, trainings=earlier)
    del cases  # and the last graph
    Clock(arguments.device).recover()
    left = list(_left(_record(arguments), arguments.seeds))
    if left:
        status = max(status, _train(arguments, left))
        print(default_table(_record(arguments)))
    return status


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--thread-counts",
        nargs="+",
        type=int,
        metavar="N",
        help="time with each (default: --threads)",
    )
    parser.add_argument(
        "--seeds", type=int, default=0, help="trainings of each network and of PyG's"
    )
    parser.add_argument(
        "--trainings", type=Path, nargs="+", default=[], metavar="FILE",
        help="records of scripts/experiments/plain_loop.py whose trainings count",
    )  # fmt: skip
    parser.add_argument("--workers", type=int, default=1, help="trainings side by side")


def _cases(arguments: argparse.Namespace) -> list[ModelCase | FirstProduct]:
    """Real features first, then large graphs, then dense features; each graph is loaded once."""
    load = lru_cache(maxsize=1)(load_default)
    networks = default_networks(arguments.device)
    large = LARGE[arguments.device]
    graphs = (QUICK_GRAPH,) if arguments.quick else (*OWN_FEATURES, *large, *DENSE)
    cases: list[ModelCase | FirstProduct] = []
    for graph in graphs:
        loader = partial(load, graph, arguments.device, arguments.data_root)
        for kind in LAYERS:
            cases += [
                ModelCase(kind, graph, loader, networks=networks, threads=threads)
                for threads in arguments.thread_counts or [None]
            ]
            if kind == "GCN" and graph.startswith(("products", QUICK_GRAPH)):
                cases.append(FirstProduct(graph, loader, networks.freeze))
    return [case for case in cases if is_wanted(arguments, case)]


def _line(result: dict[str, Any]) -> str:
    return (describe if result["group"] == ModelCase.group else describe_case)(result)


def _record(arguments: argparse.Namespace) -> dict[str, Any]:
    """The record as it is on disk."""
    if not arguments.output.exists():
        return {"results": [], "trainings": []}
    found: dict[str, Any] = json.loads(arguments.output.read_text("utf-8"))
    return found


def _of_interest(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Trainings of the models that are timed here, in floats and in bits."""
    found = []
    for run in runs:
        for kind, layer in LAYERS.items():
            case = plain_case(kind, run["graph"], run["form"], run["seed"])
            is_ours = run["layer"] == layer and run["form"] in (FLOATS, FORM)
            if is_ours and run["graph"] in (*OWN_FEATURES, *DENSE) and case.items() <= run.items():
                found.append(run)
    return found


def _left(record: dict[str, Any], seeds: int) -> Iterator[dict[str, Any]]:
    """Trainings of the labelled graphs that were timed, one graph after the other, not yet done."""
    timed = [run for r in record["results"] for run in r.get("training", {}).values() if run]
    done = [*timed, *record["trainings"]]
    pairs = dict.fromkeys((run["graph"], run["layer"]) for run in timed)
    for graph, layer in sorted(pairs, key=lambda pair: pair[0]):
        kind = next(kind for kind, own in LAYERS.items() if own == layer)
        for form in (FLOATS, FORM):
            for seed in range(seeds):
                case = plain_case(kind, graph, form, seed)
                if not any(case.items() <= run.items() for run in done):
                    yield case


def _train(arguments: argparse.Namespace, left: list[dict[str, Any]]) -> int:
    """Run trainings in parallel; finished ones are in the record however this ends."""
    runs = arguments.output.with_name(f"{arguments.output.stem}_trainings.json")
    if not arguments.resume:
        runs.with_suffix(".jsonl").unlink(missing_ok=True)
    root = None if arguments.data_root is None else str(arguments.data_root)
    try:
        status: int = kept_runs.run_and_keep(
            left, plain_loop.run, lambda runs: [], runs, root, arguments.device, arguments.workers
        )
    finally:
        if runs.exists():
            record = _record(arguments)
            record["trainings"] += json.loads(runs.read_text("utf-8"))["runs"]
            save_record(arguments.output, record)
            runs.unlink()
            runs.with_suffix(".jsonl").unlink(missing_ok=True)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
