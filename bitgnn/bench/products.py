"""Ways to multiply packed rows on a GPU, beside each other: instructions and layouts, as JSON."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitgnn.bench.cuda_ceilings import compile_program
from bitgnn.bench.environment import environment
from bitgnn.bench.report import environment_line, format_seconds, markdown_table, write_json

__all__ = ["products_main", "products_table"]

SOURCE = Path("csrc") / "bench" / "products.cu"


def products_main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit status is 1 where the program fails or a product is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("scripts/results/products_cuda.json"))
    parser.add_argument("--products", type=Path, help="a compiled csrc/bench/products.cu")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        program = arguments.products
        if program is None:
            program = Path(folder) / "products"
            compile_program(SOURCE, program)
        done = subprocess.run([str(program.resolve())], capture_output=True, text=True)
    if not done.stdout.rstrip().endswith("]"):
        print(f"bench: {program} failed: {done.stderr.strip()}")
        return 1
    results = json.loads(done.stdout)
    record = {
        "benchmark": "products_cuda",
        "environment": environment(),
        "settings": {"repeats": len(results[0]["seconds"])},
        "results": results,
    }
    write_json(arguments.output, record)
    print(f"{products_table(record)}\nwritten: {arguments.output}")
    return 0 if all(entry["wrong"] == 0 for entry in record["results"]) else 1


def products_table(record: Mapping[str, Any]) -> str:
    """Median of each way and size, all bits in and int32 out, with TOPS."""
    results = record["results"]
    sizes = sorted({entry["size"] for entry in results})
    rows: dict[str, list[str]] = {}
    for entry in results:
        seconds = statistics.median(entry["seconds"])
        tops = 2 * entry["size"] ** 3 / seconds / 1e12
        cell = f"{format_seconds(seconds)} ({tops:.0f} TOPS)"
        rows.setdefault(entry["name"], []).append(cell if entry["wrong"] == 0 else "wrong")
    head = f"{environment_line(dict(record))} In a CUDA graph, operands warm.\n\n"
    table = markdown_table(
        ["bits × bits → int32", *(f"{size}³" for size in sizes)],
        [[name, *cells] for name, cells in rows.items()],
    )
    return head + table
