"""Times `bitgnn tune` as a process and judges what it recommends: a JSON record."""

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
from bitgnn.data import load
from bitgnn.data.files import data_root as data_folder_of
from bitgnn.measure.latency import measure_in_turns, noise
from bitgnn.measure.timing import Clock
from bitgnn.train.checkpoint import load_state
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.store import CONFIG_FILE, RunStore
from bitgnn.tune.budget import parse_seconds
from bitgnn.tune.command import TuneCommand
from bitgnn.tune.objective import Measures, read_limits
from bitgnn.tune.space import Candidates
from bitgnn.tune.training import TUNED, form_model
from bitgnn.tune.workload import Workload

NAME = "tuner_runs"
PROGRAM = "from bitgnn.cli import main; main()"
GOAL_SECONDS = 45.0
"""For Cora on two cores without fine-tuning."""
EXHAUSTIVE_SECONDS, EXHAUSTIVE_ROUNDS = 25.0, 50
"""For whole forwards of every plan that keeps the accuracy limit, and most repeats of each."""


@dataclass(frozen=True)
class Run:
    """One call of the command.

    Attributes:
        name: its key in the record.
        dataset: of the call.
        options: of the call.
        goal: seconds that it may take where it has no budget; None for any number.
        exhaustive: whether every plan that keeps the limits is measured afterwards.
        root: folder of the data sets.
    """

    name: str
    dataset: str
    options: tuple[str, ...] = ()
    goal: float | None = None
    exhaustive: bool = False
    root: Path | None = None

    group = "tune"

    @property
    def command(self) -> str:
        """As it is typed."""
        return " ".join(["bitgnn tune --dataset", self.dataset, *self.options])

    @property
    def budget(self) -> float | None:
        """Seconds it was given."""
        if "--budget" not in self.options:
            return None
        return parse_seconds(self.options[self.options.index("--budget") + 1])

    def run(self, clock: Clock, repeats: int) -> dict[str, Any]:
        """Runs the command in a new folder, with as many threads as here.

        Returns:
            Seconds of the whole process, its goal, the machine, and of the result: the recommended
            plan, its figures and the baselines', plans measured; and how far the plan is from the
            best one of all that keep the limits, where that is asked for.

        Raises:
            Unmeasured: the command failed; the message is what it said.
        """
        return _measured(self, torch.get_num_threads(), self.root)


RUNS = (
    Run("cora", "Cora", goal=GOAL_SECONDS, exhaustive=True),
    Run("cora_60s_tuned", "Cora", ("--budget", "60s", "--finetune", "30")),
    Run("cora_sage", "Cora", ("--model", "graphsage", "--budget", "60s")),
    Run("pubmed_60s", "PubMed", ("--budget", "60s")),
)


def _measured(run: Run, threads: int, root: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "out"
        options = [*run.options, "--threads", str(threads), "--output", str(output)]
        options += [] if root is None else ["--data-root", str(root)]
        command = [sys.executable, "-c", PROGRAM, "tune", "--dataset", run.dataset, *options]
        begin = time.monotonic()
        process = subprocess.run(command, capture_output=True, text=True)
        seconds = time.monotonic() - begin
        if process.returncode:
            missed = process.returncode == LIMITS_MISSED
            said = process.stdout.partition("\n")[0] if missed else process.stderr.strip()
            raise Unmeasured(f"{run.command}: {said}")
        found = json.loads((output / "tune.json").read_text())
        every = _every_plan(run, found, output, root) if run.exhaustive else None
    points = {point["name"]: point for point in found["points"]}
    chosen = next(point for point in points.values() if _is_recommended(point, found))
    return {
        "key": run.name,
        "command": run.command,
        "seconds": seconds,
        "goal": run.goal if run.budget is None else run.budget,
        "environment": found["environment"],
        "space": found["space"],
        "measured": found["measured"],
        "complete": found["complete"],
        "noise": found["noise"],
        "reference": found["reference"],
        "recommended": found["recommended"],
        "chosen": _figures(chosen),
        "baselines": {n: _figures(p) for n, p in points.items() if p["plan"] is None},
        "exhaustive": every,
    }


def _figures(point: Mapping[str, Any]) -> dict[str, Any]:
    names = ("validation", "test", "memory", "fine_tuned_epochs")
    return {"latency": point["latency"]["median"], **{name: point[name] for name in names}}


def _is_recommended(point: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    epochs = found["recommended"]["notes"]["fine_tuned_epochs"]
    if point["plan"] is None or point["fine_tuned_epochs"] != epochs:
        return False
    if point["validation"] != found["recommended"]["notes"]["accuracy"]:
        return False
    return Plan.from_dict(point["plan"]) == Plan.from_dict(found["recommended"])


def _every_plan(
    run: Run, found: Mapping[str, Any], output: Path, root: Path | None
) -> dict[str, Any]:
    """Every plan that keeps the command's limits, measured in turns, beside the recommended one."""
    config = ExperimentConfig.model_validate_json((output / CONFIG_FILE).read_bytes())
    data = load(run.dataset, root)
    trained = RunStore(output, config).load(TUNED, TuneCommand.seed)
    assert trained is not None, "the command has trained it"
    model = form_model(config, TUNED, data)
    load_state(model, trained[1], f"state of form {TUNED!r}")
    workload = Workload.of(model.eval(), data)
    limits = read_limits(found["constraints"])
    chosen = replace(Plan.from_dict(found["recommended"]), model=None)
    plans = [
        Plan.from_dict(trial["plan"])
        for trial in found["trials"]
        if all(
            limit.is_met(
                Measures(trial["validation"], trial["estimate"], trial["memory"]),
                found["reference"],
            )
            for limit in limits
        )
    ]
    # It may keep the limits with weights that were trained behind the search alone.
    if all(replace(plan, model=None) != chosen for plan in plans):
        plans.append(Plan.from_dict(found["recommended"]))
    candidates = Candidates(workload)
    runs = [candidates.make(plan).run for plan in plans]
    timings = measure_in_turns(
        runs, workload.device, rounds=EXHAUSTIVE_ROUNDS, seconds=EXHAUSTIVE_SECONDS
    )
    latency = {
        replace(plan, model=None): timing.median
        for plan, timing in zip(plans, timings, strict=True)
    }
    best = min(latency.values())
    return {
        "plans": len(plans),
        "best": best,
        "chosen": latency[chosen],
        "ratio": latency[chosen] / best,
        "noise": noise(timings),
    }


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
