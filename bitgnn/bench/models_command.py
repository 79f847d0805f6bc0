"""Command line of the whole-model benchmark: cases one by one, each on disk when it is done."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from bitgnn.bench.ceilings import Ceilings, CeilingsError
from bitgnn.bench.command import parse, record
from bitgnn.bench.cuda_ceilings import measure_ceilings
from bitgnn.bench.models import Settings, run_case
from bitgnn.bench.models_charts import models_chart
from bitgnn.bench.models_floor import CpuRates, CudaRates, Rates
from bitgnn.bench.models_ours import EXECUTORS
from bitgnn.bench.models_tables import models_csv, models_table
from bitgnn.bench.models_tasks import GRAPHS, MODELS, QUICK_GRAPH, load_task
from bitgnn.bench.report import format_ratio, format_seconds, write_json
from bitgnn.data import DataError

__all__ = ["ResumeError", "finished_cases", "models_main"]

GRAPHS_BY_DEVICE = {
    "cpu": ("cora", "citeseer", "pubmed", "flickr", "reddit_eighth"),
    "cuda": ("cora", "citeseer", "pubmed", "flickr", "reddit"),
}
SAME_TO_RESUME = ("cpu", "gpu", "threads", "versions", "commit")
"""Entries of the environment that finished cases and new ones must share."""


class ResumeError(ValueError):
    """Finished cases cannot be continued; the message says why."""


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--graphs", nargs="+", choices=list(GRAPHS), help="default: all meant for the device"
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument(
        "--executors", nargs="+", choices=EXECUTORS["cuda"], help="of ours (default: all)"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep the finished cases of the output file"
    )


def models_main(argv: Sequence[str] | None = None) -> int:
    """Runs the whole-model benchmark; the exit status is 1 where a model is wrong or fails."""
    arguments = parse(
        "Times whole frozen models against PyG's.",
        "models",
        argv,
        devices=True,
        cpu_suffix="_cpu",
        extend=_options,
    )
    graphs = arguments.graphs or (
        (QUICK_GRAPH,) if arguments.quick else GRAPHS_BY_DEVICE[arguments.device]
    )
    found = record(f"models_{arguments.device}", arguments)
    results: list[dict[str, Any]] = []
    try:
        if arguments.resume and arguments.output.exists():
            results = finished_cases(arguments.output, found)
    except ResumeError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    ceilings, rates, problem = _rates(arguments)
    settings = Settings(arguments.device, arguments.repeats, rates, arguments.executors)
    skipped = [] if problem is None else [_left_out("floor", problem)]
    found |= {"results": results, "skipped": skipped, "failed": [], "ceilings": ceilings}
    done = {(result["graph"], result["model"]) for result in results}
    todo = {graph: [m for m in arguments.models if (graph, m) not in done] for graph in graphs}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
        _measure(todo, arguments, settings, found)
    write_json(arguments.output, found)
    arguments.output.with_suffix(".csv").write_text(models_csv(found), encoding="utf-8")
    if results:
        models_chart(arguments.output.with_suffix(".png"), found)
    print(f"\n{models_table(found)}\nwritten: {arguments.output} and its .csv and .png")
    problems = [f"{r['model']} on {r['graph']}: wrong" for r in results if not r["checked"]]
    problems += [f"{entry['name']}: {entry['reason']}" for entry in found["failed"]]
    for line in problems:
        print(f"bench: {line}", file=sys.stderr)
    return 1 if problems else 0


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
            except (DataError, FileNotFoundError) as error:
                found["skipped"].append(_left_out(graph, str(error)))
                progress.update(len(kinds))
                continue
            for kind in kinds:
                show = partial(_show, progress, f"{kind}, {graph}")
                try:
                    result = run_case(kind, graph, task, settings, show)
                except torch.AcceleratorError:
                    raise  # the device is of no use to this process any more
                except Exception as error:  # the other cases are worth having
                    reason = f"{type(error).__name__}: {error}"
                    found["failed"].append(_left_out(f"{kind} on {graph}", reason))
                else:
                    found["results"].append(result)
                    progress.write(_line(result))
                write_json(arguments.output, found)
                progress.update()


def _left_out(name: str, reason: str) -> dict[str, str]:
    return {"group": "models", "name": name, "reason": reason}


def finished_cases(path: Path, now: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Cases in an output file, which must have been measured as the new ones will be.

    Args:
        path: the file.
        now: environment and settings of this run.

    Raises:
        ResumeError: they were measured elsewhere, with other versions or settings.
    """
    before = json.loads(path.read_text(encoding="utf-8"))
    differences = [
        f"{name} was {before['environment'].get(name)}, is {now['environment'].get(name)}"
        for name in SAME_TO_RESUME
        if before["environment"].get(name) != now["environment"].get(name)
    ]
    if before["settings"] != now["settings"]:
        differences.append(f"settings were {before['settings']}, are {now['settings']}")
    if differences:
        raise ResumeError(
            f"--resume: the cases in {path} do not belong to this run: {'; '.join(differences)}; "
            "leave --resume out to measure all of them anew"
        )
    results: list[dict[str, Any]] = before["results"]
    return results


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
