"""Times the kernels that routes choose against those without each of their variants: JSON."""

from __future__ import annotations

from collections.abc import Sequence

from bench.command import exits_with_status, parse, run_benchmark
from bench.operators.wins import wins_cases
from bench.tables.wins import wins_table


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark on a CUDA device; the exit status is 1 where a result is wrong."""
    arguments = parse(
        "Times what each variant of a route wins over the next one.",
        {"cuda": "wins_cuda"},
        argv,
        lambda parser: parser.set_defaults(device="cuda", repeats=7),
    )
    return run_benchmark(arguments, wins_cases(), wins_table)


if __name__ == "__main__":
    raise SystemExit(main())
