"""Times BWTA layers (binary weights, ternary activations): JSON, CSV and chart."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from functools import partial

from bench.bwta.cases import attention_cases, gemv_cases, linear_cases, product_cases
from bench.command import begin, finish, parse_cases
from bench.entry import exits_with_status
from bench.networks.cases import BnnCase
from bench.networks.charts import bnn_chart
from bench.tables.networks import bnn_csv, bnn_table
from bench_bnn import case_name, measure_cases

PARTS = ("linear", "gemv", "products", "attention")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        help="which cases (on the CPU: linear alone)",
    )


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status is 1 where a result is wrong or a case fails."""
    arguments = parse_cases(
        "Times linear layers and attention of binary weights and ternary activations.",
        "bwta",
        argv,
        _options,
    )
    found = begin("bwta", arguments)
    if found is None:
        return 2
    done = {(result["group"], result["name"]) for result in found["results"]}
    cases = [case for case in _cases(arguments) if case.key not in done]
    measure_cases(cases, arguments, found)
    chart = partial(bnn_chart, title="Binary weights, ternary activations")
    return finish(found, arguments.output, bnn_csv, chart, bnn_table, case_name)


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


if __name__ == "__main__":
    raise SystemExit(main())
