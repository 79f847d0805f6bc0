"""Times training steps of whole models on a GPU, binary against full precision: a JSON record."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.command import ROOT, data_folder, exits_with_status, finish, save_record
from bench.tables.timings import training_steps_table
from bench.training_steps import SIZES, measured_cases
from bitgnn.measure.report import environment


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write ``training_cuda.json``; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    data_folder(parser)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument(
        "--graphs", nargs="+", default=list(SIZES), choices=SIZES, help="sizes of graphs"
    )
    parser.add_argument("--repeats", type=int, default=15, help="rounds of steps")
    parser.add_argument("--output", type=Path, default=Path("training_cuda.json"))
    parsed = parser.parse_args(argv)
    record: dict[str, Any] = {
        "benchmark": "training cuda",
        "environment": environment(ROOT),
        "settings": {"repeats": parsed.repeats},
        "cases": [],
    }
    for case in measured_cases(parsed.graphs, parsed.data_root, parsed.device, parsed.repeats):
        record["cases"].append(case)
        print(case["graph"], case["layer"], flush=True)
        save_record(parsed.output, record)
    return finish(parsed.output, record, training_steps_table)


if __name__ == "__main__":
    raise SystemExit(main())
