"""Measures what training the binary forms costs beside full precision: a JSON record.

On the CPU epochs of the configurations of table 3, on a GPU steps of whole models by size of graph.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from bench.command import ROOT, data_folder, exits_with_status, finish, save_record
from bench.tables.timings import training_cost_table, training_steps_table
from bench.training_steps import SIZES, measured_cases
from bitgnn.measure.environment import environment
from bitgnn.train.batches import make_batches
from bitgnn.train.build import GraphSource, build_model, make_task
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.loop import train_epoch
from bitgnn.train.session import NodeSession
from experiments.accuracy.named import TABLE3, named_experiment

GRAPHS = tuple(reversed(TABLE3))
FLOAT_FORM, JUDGED_FORM = "fp32", "bin"
GOAL = 2.0
"""Allowed training cost relative to full precision, teachers included."""
WARM_UP = 2
LEAST_EPOCHS = 3


def training_cost(config: ExperimentConfig, data: Data, epochs: int) -> dict[str, Any]:
    """Processor time of an epoch of each form, and of a whole training with all it needs.

    The forms take turns epoch by epoch, so that whatever slows the machine meets all of them.
    Processor time on one thread does not count what others do meanwhile. Teachers are stood in
    for by arbitrary probabilities, since what they say costs nothing; their training counts.

    Returns:
        By form: ``seconds_per_epoch`` (all and median), ``epochs``, ``needs`` and
        ``cost_ratio``, training with all it needs over training of full precision.
    """
    if epochs < LEAST_EPOCHS:
        raise ValueError(f"training_cost: epochs must be at least {LEAST_EPOCHS}, got {epochs}")
    runs = {}
    for form, recipe in config.forms.items():
        task = make_task(config, form, data)
        teacher = None
        if recipe.distill:
            scores = torch.randn(task.x.size(0), int(task.y.max()) + 1)
            teacher = scores.log_softmax(dim=1)
        session = NodeSession(build_model(config, form, data), recipe)
        runs[form] = session, task, make_batches(config.loader, task), teacher
    seconds: dict[str, list[float]] = {form: [] for form in runs}
    for _ in range(WARM_UP + epochs):
        for form, run in runs.items():
            begin = time.process_time()
            train_epoch(*run)
            seconds[form].append(time.process_time() - begin)
    medians = {form: statistics.median(times[WARM_UP:]) for form, times in seconds.items()}
    whole = {form: config.forms[form].epochs * median for form, median in medians.items()}
    found: dict[str, Any] = {}
    for form in config.forms:
        needs = config.all_needs(form)
        cost = sum(whole[name] for name in (form, *needs))
        found[form] = {
            "seconds_per_epoch": medians[form],
            "all_seconds": seconds[form][WARM_UP:],
            "epochs": config.forms[form].epochs,
            "needs": needs,
            "cost_ratio": cost / whole[FLOAT_FORM],
        }
    return found


@exits_with_status
def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write ``training_cost.json`` or ``training_cuda.json``; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    data_folder(parser)
    parser.add_argument("--configs", type=Path, default=ROOT / "configs")
    parser.add_argument("--only", nargs="+", default=GRAPHS, help="names of configurations")
    parser.add_argument("--epochs", type=int, default=25, help="measured epochs of each form")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--graphs", nargs="+", default=list(SIZES), choices=SIZES, help="sizes of graphs, on a GPU"
    )
    parser.add_argument("--repeats", type=int, default=15, help="rounds of steps, on a GPU")
    parser.add_argument("--output", type=Path)
    parsed = parser.parse_args(argv)
    if parsed.device == "cuda":
        return _measure_steps(parsed)
    torch.set_num_threads(1)
    graphs = {}
    for name in parsed.only:
        config = named_experiment(parsed.configs, name)
        data = GraphSource(config, parsed.data_root)(0)
        forms = training_cost(config, data, parsed.epochs)
        value = forms[JUDGED_FORM]["cost_ratio"]
        goal = f"{JUDGED_FORM}: at most {GOAL:g} times the training of fp32, teacher included"
        graphs[config.dataset.title] = {
            "forms": forms,
            "goals": [{"goal": goal, "value": value, "limit": GOAL, "met": value <= GOAL}],
        }
    record = {
        "benchmark": "training cost",
        "environment": environment(ROOT),
        "settings": {"repeats": parsed.epochs, "clock": "processor time of one thread"},
        "graphs": graphs,
    }
    return finish(parsed.output or Path("training_cost.json"), record, training_cost_table)


def _measure_steps(parsed: argparse.Namespace) -> int:
    """Steps of whole models on a GPU; the exit status."""
    record: dict[str, Any] = {
        "benchmark": "training cuda",
        "environment": environment(ROOT),
        "settings": {"repeats": parsed.repeats},
        "cases": [],
    }
    output = parsed.output or Path("training_cuda.json")
    for case in measured_cases(parsed.graphs, parsed.data_root, parsed.device, parsed.repeats):
        record["cases"].append(case)
        print(case["graph"], case["layer"], flush=True)
        save_record(output, record)
    return finish(output, record, training_steps_table)


if __name__ == "__main__":
    raise SystemExit(main())
