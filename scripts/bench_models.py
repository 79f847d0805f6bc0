"""Times whole frozen models against PyG's: JSON, CSV and chart."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tqdm import tqdm

from bench.ceilings import Ceilings, CeilingsError
from bench.command import begin, finish, parse_cases, run_into
from bench.cuda_ceilings import measure_ceilings
from bench.entry import exits_with_status
from bench.models.case import Settings, run_case
from bench.models.charts import models_chart
from bench.models.floor import CpuRates, CudaRates, Rates
from bench.models.ours import EXECUTORS
from bench.tables.models import models_csv, models_table
from bench.tasks import GRAPHS, MODELS, QUICK_GRAPH, load_task
from bitgnn.data import DataError
from bitgnn.measure.report import format_ratio, format_seconds

GRAPHS_BY_DEVICE = {
    "cpu": ("cora", "citeseer", "pubmed", "flickr", "reddit_eighth"),
    "cuda": ("cora", "citeseer", "pubmed", "flickr", "reddit"),
}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--graphs", nargs="+", choices=list(GRAPHS), help="default: all meant for the device"
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument(
        "--executors", nargs="+", choices=EXECUTORS["cuda"], help="of ours (default: all)"
    )


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the whole-model benchmark; the exit status is 1 where a model is wrong or fails."""
    arguments = parse_cases("Times whole frozen models against PyG's.", "models", argv, _options)
    graphs = arguments.graphs or (
        (QUICK_GRAPH,) if arguments.quick else GRAPHS_BY_DEVICE[arguments.device]
    )
    found = begin("models", arguments)
    if found is None:
        return 2
    print("rates of the machine ...", file=sys.stderr, flush=True)
    ceilings, rates, problem = _rates(arguments)
    settings = Settings(arguments.device, arguments.repeats, rates, arguments.executors)
    found["ceilings"] = ceilings
    if problem is not None:
        found["skipped"].append(_left_out("floor", problem))
    done = {(result["graph"], result["model"]) for result in found["results"]}
    todo = {graph: [m for m in arguments.models if (graph, m) not in done] for graph in graphs}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
        _measure(todo, arguments, settings, found)
    return finish(found, arguments.output, models_csv, models_chart, models_table, _case_name)


def _measure(
    todo: Mapping[str, Sequence[str]],
    arguments: argparse.Namespace,
    settings: Settings,
    found: dict[str, Any],
) -> None:
    """Runs the cases, adding each to the record and to the file as soon as it is done."""
    with tqdm(total=sum(map(len, todo.values())), unit="case", disable=None) as progress:
        for graph, kinds in todo.items():
            if not kinds:
                continue
            progress.set_postfix_str(f"{graph}: loading")
            try:
                task = load_task(graph, arguments.device, arguments.data_root)
            except DataError as error:
                found["skipped"].append(_left_out(graph, str(error)))
                progress.update(len(kinds))
                continue
            for kind in kinds:
                progress.write(f"{kind}, {task.name} ...", file=sys.stderr)
                show = partial(_show, progress, f"{kind}, {graph}")
                run = partial(run_case, kind, graph, task, settings, show)
                name = f"{kind} on {graph}"
                result = run_into(found, arguments.output, "models", name, run)
                if result is not None:
                    progress.write(_line(result))
                progress.update()


def _left_out(name: str, reason: str) -> dict[str, str]:
    return {"group": "models", "name": name, "reason": reason}


def _case_name(result: dict[str, Any]) -> str:
    return f"{result['model']} on {result['graph']}"


def _rates(
    arguments: argparse.Namespace,
) -> tuple[list[dict[str, Any]], Rates | None, str | None]:
    """What the machine can do, its record, and why that is not known."""
    try:
        if arguments.device == "cuda":
            measured = measure_ceilings(arguments.ceilings)
            return measured.entries, CudaRates(measured), None
        cpu = CpuRates(Ceilings(), arguments.threads)
    except (CeilingsError, FileNotFoundError, RuntimeError) as error:
        return [], None, str(error)
    return [{"name": "read", "unit": "byte", "rate": cpu.read_rate}], cpu, None


def _show(progress: Any, case: str, contender: str) -> None:
    progress.set_postfix_str(f"{case}: {contender}")


def _line(result: dict[str, Any]) -> str:
    """One line of a case for the terminal."""
    parts = []
    for ours in result["ours"]:
        if ours["seconds"] is not None:
            ratio = "" if ours["ratio"] is None else f" {format_ratio(ours['ratio'])}"
            parts.append(
                f"{ours['form']} {ours['features']} {format_seconds(ours['seconds'])}{ratio}"
            )
    failed = sum(c["failure"] is not None for c in result["contenders"])
    return (
        f"{result['model']}, {result['graph_name']}: {'; '.join(parts)} "
        f"({failed} contenders not measured, {result['wall_seconds']:.1f} s)"
        + ("" if result["checked"] else " WRONG RESULT")
    )


if __name__ == "__main__":
    raise SystemExit(main())
