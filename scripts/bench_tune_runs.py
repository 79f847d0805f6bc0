"""Times `bitgnn tune` as a process and notes what it recommends: a JSON record."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bench.command import Unmeasured, exits_with_status, parse, run_benchmark
from bench.tables.timings import runs_table
from bitgnn.cli import LIMITS_MISSED
from bitgnn.convert import Plan
from bitgnn.data.files import data_root as data_folder_of
from bitgnn.measure.timing import Clock
from bitgnn.tune.objective import parse_seconds

NAME = "tuner_runs"
PROGRAM = "from bitgnn.cli import main; main()"


@dataclass(frozen=True)
class Run:
    """One call of the command.

    Attributes:
        name: its key in the record.
        data: of the call.
        options: of the call.
        root: folder of the data sets.
    """

    name: str
    data: str
    options: tuple[str, ...] = ()
    root: Path | None = None

    group = "tune"

    @property
    def command(self) -> str:
        """As it is typed."""
        return " ".join(["bitgnn tune --data", self.data, *self.options])

    @property
    def budget(self) -> float | None:
        """Seconds it was given."""
        if "--budget" not in self.options:
            return None
        return parse_seconds(self.options[self.options.index("--budget") + 1])

    def run(self, clock: Clock, repeats: int) -> dict[str, Any]:
        """Runs the command in a new folder, with as many threads as here."""
        return _measured(self, torch.get_num_threads(), self.root)


RUNS = (
    Run("cora", "Cora"),
    Run("cora_60s", "Cora", ("--budget", "60s")),
    Run("cora_sage", "Cora", ("--model", "sage", "--budget", "60s")),
    Run("pubmed_60s", "PubMed", ("--budget", "60s")),
)


def _measured(run: Run, threads: int, root: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "out"
        options = [*run.options, "--threads", str(threads), "--output", str(output)]
        options += [] if root is None else ["--data-root", str(root)]
        command = [sys.executable, "-c", PROGRAM, "tune", "--data", run.data, *options]
        begin = time.monotonic()
        process = subprocess.run(command, capture_output=True, text=True)
        seconds = time.monotonic() - begin
        if process.returncode:
            missed = process.returncode == LIMITS_MISSED
            said = process.stdout.partition("\n")[0] if missed else process.stderr.strip()
            raise Unmeasured(f"{run.command}: {said}")
        found = json.loads((output / "tune.json").read_text())
    points = {point["name"]: point for point in found["points"]}
    chosen = next(point for point in points.values() if _is_recommended(point, found))
    return {
        "key": run.name,
        "command": run.command,
        "seconds": seconds,
        "goal": run.budget,
        "environment": found["environment"],
        "space": found["space"],
        "measured": found["measured"],
        "complete": found["complete"],
        "noise": found["noise"],
        "reference": found["reference"],
        "recommended": found["recommended"],
        "chosen": _figures(chosen),
        "baselines": {n: _figures(p) for n, p in points.items() if p["plan"] is None},
        "distilled": sum(point["plan"] is not None for point in points.values()),
    }


def _figures(point: Mapping[str, Any]) -> dict[str, Any]:
    names = ("validation", "test", "memory", "widen", "distilled_epochs")
    return {"latency": point["latency"]["median"], **{name: point[name] for name in names}}


def _is_recommended(point: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    if point["plan"] is None:
        return False
    return Plan.from_dict(point["plan"]) == Plan.from_dict(found["recommended"])


def describe(result: Mapping[str, Any]) -> str:
    """One line of a result for the terminal."""
    return f"{result['command']}: {result['seconds']:.1f} s"


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Makes the calls one after the other; the exit status."""
    arguments = parse("Times `bitgnn tune` as a whole.", {"cpu": NAME}, argv)
    root = data_folder_of(arguments.data_root)
    runs = [replace(run, root=root) for run in RUNS]
    return run_benchmark(arguments, runs, runs_table, line=describe)


if __name__ == "__main__":
    raise SystemExit(main())
