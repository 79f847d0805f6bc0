"""Times what separates layers on a GPU: waits of a whole grid, and boundaries of kernels."""

from __future__ import annotations

from collections.abc import Sequence

from bench.command import Unmeasured, exits_with_status, finish, parse, record
from bench.cuda_ceilings import SOURCE, output_of
from bench.tables.paper_times import waits_table


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Compiles and runs ``grid_waits.cu`` and writes the record; the exit status."""
    names = {"cpu": "waits_cuda", "cuda": "waits_cuda"}
    arguments = parse("Times what separates layers on a GPU.", names, argv)
    if arguments.device != "cuda":
        raise Unmeasured("the program runs on a GPU alone; add --device cuda")
    found = output_of(SOURCE.with_name("grid_waits.cu"))
    shape = {name: found.pop(name) for name in ("processors", "threads")}
    results = [{"name": name, "seconds": seconds} for name, seconds in found.items()]
    return finish(arguments.output, record(arguments, results=results, **shape), waits_table)


if __name__ == "__main__":
    raise SystemExit(main())
