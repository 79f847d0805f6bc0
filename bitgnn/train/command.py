"""The commands `bitgnn train` and `bitgnn demo`: train an experiment, freeze, check and report."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console

from bitgnn.train.build import GraphSource
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.deploy import evaluate
from bitgnn.train.experiment import train_all
from bitgnn.train.report import result_table, write_results
from bitgnn.train.run import RunOptions
from bitgnn.train.store import RunStore, alone_in
from bitgnn.train.workers import Job, train_side_by_side


class TrainInterrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C; the message says what was kept."""


def run_experiment(
    experiment: ExperimentConfig,
    output: Path,
    data_root: str | None,
    options: RunOptions,
    workers: int,
    console: Console,
) -> None:
    """Train what the output folder lacks, freeze it, compare, measure and write the results.

    Args:
        experiment: the forms, and how each is trained.
        output: folder for all files, which no other process writes to meanwhile.
        data_root: folder of the data sets; None for the default.
        options: device and the like.
        workers: processes that train side by side.
        console: where results are printed.

    Raises:
        DataError: the graph cannot be had.
        MismatchError: a frozen model differs from the trained one.
        OutputError: the folder cannot be written, holds another experiment, or is in use.
        TrainInterrupted: stopped by Ctrl-C while training.
        ValueError: a device or file is wrong.
    """
    options.torch_device()
    with alone_in(output):
        store = RunStore(output, experiment)
        graphs = GraphSource(experiment, data_root)
        data = graphs.check()
        console.print(
            f"{experiment.dataset.title}: {data.x.size(0)} nodes, {data.edge_index.size(1)} edges, "
            f"{data.x.size(1)} features; "
            f"{experiment.seeds} seed{'s' if experiment.seeds > 1 else ''}"
        )
        try:
            if workers > 1:
                jobs = [Job(experiment, output)]
                finished = train_side_by_side(jobs, data_root, options, workers, console)[0]
                runs = [one.run for one in finished]
            else:
                runs = train_all(experiment, graphs, store, console, options)
        except KeyboardInterrupt:
            raise TrainInterrupted(
                f"stopped; finished runs and checkpoints are kept in {output}, the same command "
                "goes on"
            ) from None
        results = evaluate(experiment, graphs, store, runs)
        console.print(result_table(experiment, results, torch.get_num_threads()))
        console.print("Frozen and trained models agree on every node of every seed.")
        written = write_results(output, experiment, data, results)
        console.print("Written: " + ", ".join(str(path) for path in written), soft_wrap=True)
