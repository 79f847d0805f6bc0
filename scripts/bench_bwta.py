"""Times BWTA layers (binary weights, ternary activations): a JSON record."""

from __future__ import annotations

from collections.abc import Sequence

from bench.bwta.cases import attention_cases, gemv_cases, linear_cases, product_cases
from bench.command import exits_with_status, parse, run_benchmark
from bench.tables.networks import bnn_table
from bench_bnn import REPEAT_SECONDS
from bitgnn.measure.timing import Clock


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status is 1 where a result is wrong or a case fails."""
    names = {"cpu": "bwta_cpu", "cuda": "bwta_cuda"}
    arguments = parse(
        "Times linear layers and attention of binary weights and ternary activations.", names, argv
    )
    quick, cases = arguments.quick, [*linear_cases(arguments.device, arguments.quick)]
    if arguments.device == "cuda":
        cases += [*gemv_cases(quick), *product_cases(quick), *attention_cases(quick)]
    return run_benchmark(
        arguments,
        cases,
        bnn_table,
        clock=Clock(arguments.device, REPEAT_SECONDS[arguments.device]),
    )


if __name__ == "__main__":
    raise SystemExit(main())
