"""Times whole calls, Python included: frozen models, eager operators, PyG; JSON."""

from __future__ import annotations

from collections.abc import Sequence

from bench.calls import call_cases, describe
from bench.command import exits_with_status, parse, run_benchmark
from bench.tables.timings import calls_table


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark of calls; the exit status is 1 where a result is wrong."""
    names = {"cpu": "calls_cpu", "cuda": "calls_cuda"}
    arguments = parse("Times calls of frozen models and operators on the host.", names, argv)
    cases = call_cases(arguments.device, arguments.quick)
    return run_benchmark(arguments, cases, calls_table, line=describe)


if __name__ == "__main__":
    raise SystemExit(main())
