"""The commands `bitgnn train` and `bitgnn demo`: train an experiment, freeze, check and report."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console

from bitgnn._files import alone_in
from bitgnn._plain import record_job
from bitgnn.distillation.named import named_device, sizes
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.experiment import RUNS_FOLDER, GraphSource, train_all
from bitgnn.train.report import measured, result_table, write_results

CONFIG_FILE = "config.json"


class TrainInterrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C; the message says what was kept."""


def run_experiment(
    experiment: ExperimentConfig,
    output: Path,
    data_root: str | None,
    device: str,
    console: Console,
) -> None:
    """Train what the output folder lacks, freeze it, compare, measure and write the results."""
    place = named_device(device)
    with alone_in(output):
        # More seeds go on where fewer ended.
        wanted = experiment.model_dump(mode="json", exclude={"seeds"})
        record_job(output / CONFIG_FILE, wanted, any((output / RUNS_FOLDER).glob("*/*.checkpoint")))
        graphs = GraphSource(experiment, data_root)
        data = graphs.check()
        seeds = f"{experiment.seeds} seed{'s' if experiment.seeds > 1 else ''}"
        console.print(f"{sizes(experiment.dataset.title, data)}; {seeds}", highlight=False)
        try:
            forms = train_all(
                experiment, graphs, output, place, lambda line: console.print(line, highlight=False)
            )
        except KeyboardInterrupt:
            raise TrainInterrupted(
                f"stopped; finished runs and checkpoints are kept in {output}, the same command "
                "goes on"
            ) from None
        results = measured(experiment, data, forms)
        console.print(result_table(experiment, results, torch.get_num_threads()))
        differing = sum(run.differing for run in forms.runs)
        agree = (
            "agree on every node of every seed" if not differing else f"differ on {differing} nodes"
        )
        console.print(f"Frozen and trained models {agree}.", highlight=False)
        written = write_results(output, experiment, data, results)
        console.print("Written: " + ", ".join(str(path) for path in written), soft_wrap=True)
