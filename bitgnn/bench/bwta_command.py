"""Command line of the benchmark of BWTA layers: cases one by one, each on disk when done."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from bitgnn.bench.bnn_cases import BnnCase
from bitgnn.bench.bnn_charts import bnn_chart
from bitgnn.bench.bnn_command import measure_cases
from bitgnn.bench.bnn_tables import bnn_csv, bnn_table
from bitgnn.bench.bwta_cases import attention_cases, gemv_cases, linear_cases, product_cases
from bitgnn.bench.command import parse, record
from bitgnn.bench.models_command import ResumeError, finished_cases
from bitgnn.bench.report import write_json

__all__ = ["bwta_main"]

PARTS = ("linear", "gemv", "products", "attention")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        help="which cases (on the CPU: linear alone)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep the finished cases of the output file"
    )


def bwta_main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status is 1 where a result is wrong or a case fails."""
    arguments = parse(
        "Times linear layers and attention of binary weights and ternary activations.",
        "bwta",
        argv,
        devices=True,
        cpu_suffix="_cpu",
        extend=_options,
    )
    found = record(f"bwta_{arguments.device}", arguments)
    results: list[dict[str, Any]] = []
    try:
        if arguments.resume and arguments.output.exists():
            results = finished_cases(arguments.output, found)
    except ResumeError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    found |= {"results": results, "skipped": [], "failed": []}
    done = {(result["group"], result["name"]) for result in results}
    cases = [case for case in _cases(arguments) if case.key not in done]
    measure_cases(cases, arguments, found)
    write_json(arguments.output, found)
    arguments.output.with_suffix(".csv").write_text(bnn_csv(found), encoding="utf-8")
    if results:
        title = "Binary weights, ternary activations"
        bnn_chart(arguments.output.with_suffix(".png"), found, title)
    print(f"\n{bnn_table(found)}\nwritten: {arguments.output} and its .csv and .png")
    problems = [f"{r['group']}: {r['name']}: wrong" for r in results if not r["checked"]]
    problems += [f"{entry['name']}: {entry['reason']}" for entry in found["failed"]]
    for line in problems:
        print(f"bench: {line}", file=sys.stderr)
    return 1 if problems else 0


def _cases(arguments: argparse.Namespace) -> Iterable[BnnCase]:
    quick, parts = arguments.quick, arguments.parts
    if "linear" in parts:
        yield from linear_cases(arguments.device, quick)
    if arguments.device == "cpu":
        return
    if "gemv" in parts:
        yield from gemv_cases(quick)
    if "products" in parts:
        yield from product_cases(quick)
    if "attention" in parts:
        yield from attention_cases(quick)
