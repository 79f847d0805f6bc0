"""The command `bitgnn`: demo, train, distill, tune and doctor.

Exit statuses: 0 done; 1 something that the one line printed says how to mend; 2 a mistyped command;
3 `tune` found no plan that keeps the limits; 130 interrupted by Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from bitgnn._ctrl_c import INTERRUPTED, ctrl_c_always_stops
from bitgnn._one_line import say, warnings_in_one_line
from bitgnn._package import load_package
from bitgnn._version import __version__

if TYPE_CHECKING:
    from bitgnn.train import ExperimentConfig, RunOptions

__all__ = ["app", "main"]

LIMITS_MISSED = 3
OWN_PROCESS = "own process"
"""Object of the context where a command is all that its process does: starting it counts too."""
DEMO_FOLDER = Path("bitgnn-demo")
TRAIN_FOLDER = Path("bitgnn-train")
DISTILL_FOLDER = Path("bitgnn-distill")
TUNE_FOLDER = Path("bitgnn-tune")

app = typer.Typer(
    name="bitgnn",
    help="Binary graph neural networks on real bits.",
    epilog="Examples: bitgnn demo; bitgnn train --config gcn_cora; bitgnn tune --dataset Cora "
    "--budget 60s. Exit status: 0 done, 1 an error, 2 a mistyped command, 3 no plan keeps the "
    "limits of tune, 130 interrupted.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Output = Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the results.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of torch (default: all).")]
DataRoot = Annotated[
    str | None,
    typer.Option(
        "--data-root",
        "--root",
        help="Folder of the data sets (default: BITGNN_DATA, else ./data).",
    ),
]
GRAPH = (
    "Graph: the name of a data set, an .npz file, a folder of graph.safetensors and graph.json, or "
    "a class of PyG as package.module:Class"
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"bitgnn {__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Binary graph neural networks on real bits."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(short_help="Train, freeze and measure a small GCN.")
def demo(
    output: Output = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repeats of each form.")] = 3,
    threads: Threads = None,
) -> None:
    """Train a GCN on a graph of digits in three precisions, freeze, check and measure it."""

    def job() -> None:
        from bitgnn.train import RunOptions, demo_config

        _run_experiment(demo_config(seeds), output or DEMO_FOLDER, None, RunOptions())

    _guard(job, threads)


@app.command(short_help="Train and freeze what a file configures.")
def train(
    config: Annotated[
        str,
        typer.Option(
            "--config", "-c", help="YAML file, or the name of a built-in one such as gcn_cora."
        ),
    ],
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
    workers: Annotated[
        int, typer.Option(min=1, help="Number of processes; runs are trained in parallel.")
    ] = 1,
    checkpoint_every: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Minimum seconds between checkpoints; 0 writes one after every epoch (default: "
            "often enough to cost at most 5 % of the time).",
        ),
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="Reproducible bit for bit on CUDA too, but slower."),
    ] = False,
) -> None:
    """Train the forms of a configuration over its seeds, freeze, check and measure them.

    Finished runs stay in the output folder and the one under way leaves checkpoints; the same
    command goes on where it was stopped or killed.
    """

    def job() -> None:
        from bitgnn.train import RunOptions, find_config, load_config
        from bitgnn.train.config import DatasetConfig, check_config

        experiment = load_config(find_config(config))
        folder = TRAIN_FOLDER / experiment.name
        if seeds is not None:
            experiment = experiment.model_copy(update={"seeds": seeds})
        if data is not None:
            dataset = check_config({"name": data}, DatasetConfig, "--data")
            experiment = experiment.model_copy(update={"dataset": dataset})
            folder = TRAIN_FOLDER / f"{experiment.name}-{_short(data)}"
        options = RunOptions(device, checkpoint_every, deterministic)
        _run_experiment(experiment, output or folder, data_root, options, workers)

    _guard(job, threads)


@app.command(name="distill", short_help="Teach a binary model by a float one.")
def distill_command(
    data: Annotated[str, typer.Option(help=f"{GRAPH}.")],
    model: Annotated[
        str,
        typer.Option(
            help="Float model: gcn, sage or graphconv of PyG, a graph model of bitgnn.models such "
            "as GraphSAGE, or package.module:Name, a class or function that takes in_channels, "
            "hidden_channels, out_channels and num_layers or some of them."
        ),
    ] = "gcn",
    hidden: Annotated[
        int | None, typer.Option(min=1, help="Width of hidden layers (default: 64).")
    ] = None,
    layers: Annotated[
        int | None, typer.Option(min=1, help="Number of layers (default: 2).")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Trained weights of the model, a safetensors file (default: train it)."),
    ] = None,
    precision: Annotated[
        str, typer.Option(help="Precision of the binary model: bin, full, or letters.")
    ] = "bin",
    widen: Annotated[
        float | None, typer.Option(min=1, help="Times as many hidden channels as the model has.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of each training (default: by the data).")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time for all training, such as 60s (default: no limit).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
    device: Annotated[str, typer.Option(help="Device to train on: cpu, cuda or auto.")] = "auto",
    output: Output = None,
    data_root: DataRoot = None,
    threads: Threads = None,
) -> None:
    """Distill a float model into a binary one, freeze it and compare the two.

    A model that is not trained yet is trained first. The output folder gets the frozen model, the
    epochs as CSV and as a picture, and a report as JSON. Checkpoints stay in it; the same command
    goes on where it was stopped or killed.
    """

    def job() -> None:
        from rich.console import Console

        from bitgnn.distillation.command import DistillCommand, DistillInterrupted, run_distill
        from bitgnn.tune.budget import parse_seconds

        folder = output or DISTILL_FOLDER / f"{_short(model)}-{_short(data)}"
        seconds = None if budget is None else parse_seconds(budget)
        command = DistillCommand(
            data, model, hidden, layers, state, precision, widen, epochs, seconds, seed, device,
            folder, data_root,
        )  # fmt: skip
        try:
            run_distill(command, Console())
        except DistillInterrupted as stopped:
            _stop(stopped)

    _guard(job, threads)


@app.command(short_help="Find the precision of each layer.")
def tune(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="gcn, graphsage or graphsaint.")] = "gcn",
    dataset: Annotated[str, typer.Option("--dataset", "--data", help=f"{GRAPH}.")] = "Cora",
    objective: Annotated[
        str, typer.Option(help="Quantity to optimise: latency, memory or accuracy.")
    ] = "latency",
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            help="Limit such as 'latency <= 2 ms', 'memory <= 10 MB' or 'accuracy drop <= 1%', "
            "counted in points below fp32; repeatable (default: accuracy drop <= 1%)."
        ),
    ] = None,
    pin: Annotated[
        list[str] | None,
        typer.Option(help="Precision of a layer, such as 'convs.0=FBB+BBB'; repeatable."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Total time, training included, such as 60s; time left after the search is spent "
            "on more training (default: no limit, each form is trained once)."
        ),
    ] = None,
    finetune: Annotated[
        int, typer.Option(min=0, help="Epochs of fine-tuning for each finalist.")
    ] = 0,
    device: Annotated[str, typer.Option(help="Device to run on: cpu, cuda or auto.")] = "cpu",
    output: Output = None,
    storage: Annotated[
        Path | None, typer.Option(help="SQLite file of all trials (default: in the output folder).")
    ] = None,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Also write the packed model if its plan keeps the limits."),
    ] = False,
    data_root: DataRoot = None,
    hidden: Annotated[int, typer.Option(min=1, help="Width of hidden layers.")] = 64,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of each training (default: a short training).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
    threads: Threads = None,
) -> None:
    """Train a model and find the precision of each layer that suits it best.

    fp32 is trained first: losses of accuracy count from it. Its binary form follows, whose plans
    are searched. The first line printed says what to take; where no plan is known to keep the
    limits it says so, and the files are of the nearest one. Finished trials stay in the storage;
    the same command goes on where it was stopped or killed.

    Exit status: 0 a plan that keeps the limits, 1 an error, 3 no plan keeps them, 130 interrupted.
    """

    def job() -> None:
        from rich.console import Console

        from bitgnn.tune.budget import age_of_process
        from bitgnn.tune.command import TuneCommand, run_tune
        from bitgnn.tune.tuner import TuneInterrupted

        folder = output or TUNE_FOLDER / f"{model}-{_short(dataset)}"
        limits = TuneCommand.constraints if constraint is None else constraint
        command = TuneCommand(
            model, dataset, objective, tuple(limits), tuple(pin or ()), budget, finetune, device,
            folder, storage, apply, data_root, seed, hidden, epochs,
            spent=age_of_process() if context.obj == OWN_PROCESS else 0.0,
        )  # fmt: skip
        try:
            result = run_tune(command, Console())
        except TuneInterrupted as stopped:
            _stop(stopped)
        if result.missed is not None:
            raise typer.Exit(LIMITS_MISSED)

    _guard(job, threads)


@app.command()
def doctor() -> None:
    """Print versions, build, hardware and what is missing."""

    def job() -> None:
        from bitgnn.doctor import report

        typer.echo(report())

    _guard(job, None)


def _run_experiment(
    experiment: ExperimentConfig,
    output: Path,
    data_root: str | None,
    options: RunOptions,
    workers: int = 1,
) -> None:
    from rich.console import Console

    from bitgnn.train.command import TrainInterrupted, run_experiment

    try:
        run_experiment(experiment, output, data_root, options, workers, Console())
    except TrainInterrupted as stopped:
        _stop(stopped)


def _short(name: str) -> str:
    """Name of a graph or model as a part of a folder's name."""
    from bitgnn.data.own_graphs import graph_title

    return graph_title(name).lower()


def _stop(stopped: KeyboardInterrupt) -> NoReturn:
    say(stopped)
    raise typer.Exit(INTERRUPTED) from None


def _guard(job: Callable[[], None], threads: int | None) -> None:
    """Run ``job``; what a user can mend becomes one line and exit status 1, Ctrl-C a status."""
    try:
        with ctrl_c_always_stops(), warnings_in_one_line():
            load_package()
            import torch

            from bitgnn.train import MENDABLE

            if threads is not None:
                torch.set_num_threads(threads)
            try:
                job()
            except MENDABLE as error:
                say(f"error: {error}")
                raise typer.Exit(1) from None
    except KeyboardInterrupt:  # while importing, too
        raise typer.Exit(INTERRUPTED) from None


def main() -> None:
    """Entry point of the console script."""
    app(obj=OWN_PROCESS)


if __name__ == "__main__":
    main()
