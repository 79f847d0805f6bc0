"""Times binary convolutions and networks: JSON, CSV and chart."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from tqdm import tqdm

from bench.command import begin, finish, parse_cases, run_into
from bench.entry import exits_with_status
from bench.networks.cases import BnnCase, describe, graph_clock, run_case
from bench.networks.charts import bnn_chart
from bench.networks.layers import conv_cases, cpu_conv_cases, linear_cases
from bench.networks.networks import MODES, cpu_network_cases, network_cases
from bench.networks.peers import compile_ahead
from bench.networks.structures import STRUCTURES
from bench.tables.networks import bnn_csv, bnn_table

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


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status is 1 where a result is wrong or a case fails."""
    arguments = parse_cases(
        "Times binary convolutions and networks against torch's.", "bnn", argv, _options
    )
    found = begin("bnn", arguments)
    if found is None:
        return 2
    found["compile_seconds"] = None
    done = {(result["group"], result["name"]) for result in found["results"]}
    cases = [case for case in _cases(arguments) if case.key not in done]
    if arguments.device == "cuda":
        # Both choose among cuDNN's algorithms by trying them, ours calls none of them.
        torch.backends.cudnn.benchmark = True
        _compile(arguments, cases, found)
    measure_cases(cases, arguments, found)
    return finish(found, arguments.output, bnn_csv, bnn_chart, bnn_table, case_name)


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


def case_name(result: dict[str, Any]) -> str:
    """Group and name of a result."""
    return f"{result['group']}: {result['name']}"


def measure_cases(
    cases: Sequence[BnnCase], arguments: argparse.Namespace, found: dict[str, Any]
) -> None:
    """Runs the cases, adding each to the record and to the file as soon as it is done."""
    clock = graph_clock(arguments.device)
    with tqdm(total=len(cases), unit="case", disable=None) as progress:
        for case in cases:
            show = partial(_show, progress, f"{case.group}: {case.name}")
            run = partial(run_case, case, clock, arguments.repeats, show)
            name = f"{case.group}: {case.name}"
            result = run_into(found, arguments.output, case.group, name, run)
            if result is not None:
                progress.write(describe(result))
            progress.update()


def _show(progress: Any, case: str, entry: str) -> None:
    progress.set_postfix_str(f"{case}: {entry}")


if __name__ == "__main__":
    raise SystemExit(main())
