"""The commands `demo` and `train`: experiments that train several forms of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bitgnn.cli.base import GRAPH, DataRoot, Output, Threads, app, guard, stop

if TYPE_CHECKING:
    from bitgnn.train import ExperimentConfig

DEMO_FOLDER = Path("bitgnn-demo")
TRAIN_FOLDER = Path("bitgnn-train")


@app.command(short_help="Train, freeze and measure a small GCN.")
def demo(
    output: Output = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repeats of each form.")] = 3,
    threads: Threads = None,
) -> None:
    """Train a GCN on a graph of digits in three precisions, freeze, check and measure it."""

    def job() -> None:
        from bitgnn.train import demo_config

        _run_experiment(demo_config(seeds), output or DEMO_FOLDER, None, "cpu")

    guard(job, threads)


@app.command(short_help="Train a model and its binary forms over several seeds.")
def train(
    config: Annotated[
        str,
        typer.Option(
            "--config", "-c", help="YAML file, or the name of a built-in one such as sage_flickr."
        ),
    ] = "gcn",
    data: Annotated[
        str | None, typer.Option(help=f"{GRAPH} (default: the configuration's).")
    ] = None,
    data_root: DataRoot = None,
    output: Output = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of repeats (default: the configuration's).")
    ] = None,
    threads: Threads = None,
    device: Annotated[str, typer.Option(help="Device to train on: cpu, cuda or auto.")] = "auto",
) -> None:
    """Train the forms of a configuration over its seeds, freeze, check and measure them.

    The float model is trained first and teaches its binary forms, as `bitgnn distill` does it.
    Checkpoints stay in the output folder; the same command goes on where it was stopped or killed.
    """

    def job() -> None:
        from bitgnn.train import find_config, load_config

        experiment = load_config(find_config(config))
        if seeds is not None:
            experiment = experiment.model_copy(update={"seeds": seeds})
        if data is not None:
            experiment = experiment.on(data)
        folder = output or TRAIN_FOLDER / experiment.name
        _run_experiment(experiment, folder, data_root, device)

    guard(job, threads)


def _run_experiment(
    experiment: ExperimentConfig, output: Path, data_root: str | None, device: str
) -> None:
    from rich.console import Console

    from bitgnn.train.command import TrainInterrupted, run_experiment

    try:
        run_experiment(experiment, output, data_root, device, Console())
    except TrainInterrupted as stopped:
        stop(stopped)
