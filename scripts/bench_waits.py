"""Times what separates layers on a GPU, and loads, stores and products of tiles of bits."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench.command import Unmeasured, exits_with_status, finish, parse, record
from bench.cuda_ceilings import SOURCE, output_of
from bench.tables.paper_times import waits_table


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Compiles and runs ``grid_waits.cu`` and writes the record; the exit status."""
    names = {"cpu": "waits_cuda", "cuda": "waits_cuda"}
    arguments = parse("Times waits between layers, and tiles of bits, on a GPU.", names, argv)
    if arguments.device != "cuda":
        raise Unmeasured("the program runs on a GPU alone; add --device cuda")
    found = output_of(SOURCE.with_name("grid_waits.cu"))
    shape = {name: found.pop(name) for name in ("processors", "threads")}
    results = [{"name": name, "seconds": seconds} for name, seconds in found.items()]
    tiles: dict[str, float] = {}
    try:
        tiles = output_of(SOURCE.with_name("bit_tiles.cu"))
    except RuntimeError as error:  # the waits are worth having
        print(error, file=sys.stderr)
    body = record(arguments, results=results, cycles_of_tiles=tiles, **shape)
    return finish(arguments.output, body, waits_table)


if __name__ == "__main__":
    raise SystemExit(main())
