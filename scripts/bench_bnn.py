"""Times binary convolutions and networks: a JSON record."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bench.command import exits_with_status, is_wanted, parse, run_benchmark
from bench.networks.layers import conv_cases, cpu_conv_cases, linear_cases
from bench.networks.networks import compile_ahead, cpu_network_cases, network_cases
from bench.tables.networks import bnn_table
from bitgnn.measure.timing import Clock

REPEAT_SECONDS = {"cpu": None, "cuda": 4e-3}
"""A repeat on CUDA holds some twenty calls of a network or more of a layer."""


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status is 1 where a result is wrong or a case fails."""
    names = {"cpu": "bnn_cpu", "cuda": "bnn_cuda"}
    arguments = parse("Times binary convolutions and networks against torch's.", names, argv)
    quick, compile_seconds = arguments.quick, None
    if arguments.device == "cpu":
        cases = [*cpu_conv_cases(quick), *cpu_network_cases(quick)]
    else:
        # Both choose among cuDNN's algorithms by trying them, ours calls none of them.
        torch.backends.cudnn.benchmark = True
        networks = list(network_cases(quick))
        cases = [*networks, *conv_cases(quick), *linear_cases(quick)]
        sizes = [case.details for case in networks if is_wanted(arguments, case)]
        # Tuned side by side, on a device that is quiet again when times are taken.
        compile_seconds = compile_ahead((size["network"], size["images"]) for size in sizes)
    return run_benchmark(
        arguments,
        cases,
        bnn_table,
        clock=Clock(arguments.device, REPEAT_SECONDS[arguments.device]),
        compile_seconds=compile_seconds,
    )


if __name__ == "__main__":
    raise SystemExit(main())
