"""Command line of the benchmark of binary networks: cases one by one, each on disk when done."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from tqdm import tqdm

from bitgnn.bench.bnn_cases import BnnCase, GraphClock, describe, run_case
from bitgnn.bench.bnn_charts import bnn_chart
from bitgnn.bench.bnn_layers import conv_cases, cpu_conv_cases, linear_cases
from bitgnn.bench.bnn_networks import MODES, cpu_network_cases, network_cases
from bitgnn.bench.bnn_peers import compile_ahead
from bitgnn.bench.bnn_structures import STRUCTURES
from bitgnn.bench.bnn_tables import bnn_csv, bnn_table
from bitgnn.bench.command import parse, record
from bitgnn.bench.models_command import ResumeError, finished_cases
from bitgnn.bench.report import write_json

__all__ = ["bnn_main", "measure_cases"]

PARTS = ("convolutions", "linear", "networks")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--networks", nargs="+", choices=list(STRUCTURES), default=list(STRUCTURES))
    parser.add_argument(
        "--channels", nargs="+", type=int, help="of the sweep with 16 images (default: all)"
    )
    parser.add_argument(
        "--compile-modes",
        nargs="*",
        choices=MODES,
        default=["default"],
        help="of torch.compile for the plain networks on CUDA (default: default)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep the finished cases of the output file"
    )


def bnn_main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status is 1 where a result is wrong or a case fails."""
    arguments = parse(
        "Times binary convolutions and networks against torch's.",
        "bnn",
        argv,
        devices=True,
        cpu_suffix="_cpu",
        extend=_options,
    )
    found = record(f"bnn_{arguments.device}", arguments)
    results: list[dict[str, Any]] = []
    try:
        if arguments.resume and arguments.output.exists():
            results = finished_cases(arguments.output, found)
    except ResumeError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    found |= {"results": results, "skipped": [], "failed": [], "compile_seconds": None}
    done = {(result["group"], result["name"]) for result in results}
    cases = [case for case in _cases(arguments) if case.key not in done]
    if arguments.device == "cuda":
        # Both choose among cuDNN's algorithms by trying them, ours calls none of them.
        torch.backends.cudnn.benchmark = True
        _compile(arguments, cases, found)
    measure_cases(cases, arguments, found)
    write_json(arguments.output, found)
    arguments.output.with_suffix(".csv").write_text(bnn_csv(found), encoding="utf-8")
    if results:
        bnn_chart(arguments.output.with_suffix(".png"), found)
    print(f"\n{bnn_table(found)}\nwritten: {arguments.output} and its .csv and .png")
    problems = [f"{r['group']}: {r['name']}: wrong" for r in results if not r["checked"]]
    problems += [f"{entry['name']}: {entry['reason']}" for entry in found["failed"]]
    for line in problems:
        print(f"bench: {line}", file=sys.stderr)
    return 1 if problems else 0


def _cases(arguments: argparse.Namespace) -> Iterable[BnnCase]:
    quick, parts = arguments.quick, arguments.parts
    if arguments.device == "cpu":
        if "convolutions" in parts:
            yield from cpu_conv_cases(quick)
        if "networks" in parts:
            yield from cpu_network_cases(arguments.networks, quick)
        return
    if "networks" in parts:
        yield from network_cases(arguments.networks, arguments.compile_modes, quick)
    if "convolutions" in parts:
        yield from conv_cases(quick, arguments.channels)
    if "linear" in parts:
        yield from linear_cases(quick)


def _compile(
    arguments: argparse.Namespace, cases: Sequence[BnnCase], found: dict[str, Any]
) -> None:
    """Fills torch's cache of compiled networks, many at a time; tuned ones need a quiet device."""
    wanted = [
        (case.details["network"], case.details["images"], None)
        for case in cases
        if "network" in case.details and "default" in arguments.compile_modes
    ]
    if not wanted:
        return
    start = time.perf_counter()
    compile_ahead(wanted, lambda line: print(line, file=sys.stderr, flush=True))
    found["compile_seconds"] = time.perf_counter() - start


def measure_cases(
    cases: Sequence[BnnCase], arguments: argparse.Namespace, found: dict[str, Any]
) -> None:
    """Runs the cases, adding each to the record and to the file as soon as it is done.

    Args:
        cases: what to run.
        arguments: device, repeats and output.
        found: the record; its lists "results" and "failed" grow.
    """
    clock = GraphClock(arguments.device)
    with tqdm(total=len(cases), unit="case", disable=None) as progress:
        for case in cases:
            show = partial(_show, progress, f"{case.group}: {case.name}")
            try:
                result = run_case(case, clock, arguments.repeats, show)
            except torch.AcceleratorError:
                raise  # the device is of no use to this process any more
            except Exception as error:  # the other cases are worth having
                reason = f"{type(error).__name__}: {error}"
                name = f"{case.group}: {case.name}"
                found["failed"].append({"group": case.group, "name": name, "reason": reason})
            else:
                found["results"].append(result)
                progress.write(describe(result))
            write_json(arguments.output, found)
            progress.update()


def _show(progress: Any, case: str, entry: str) -> None:
    progress.set_postfix_str(f"{case}: {entry}")
