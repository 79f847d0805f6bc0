"""The command `bitgnn`: demo, train and doctor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

__all__ = ["app", "main"]

INTERRUPTED = 130
DEMO_FOLDER = Path("bitgnn-demo")
TRAIN_FOLDER = Path("bitgnn-train")

app = typer.Typer(
    name="bitgnn",
    help="Binary graph neural networks on real bits.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Output = Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the results.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of torch (default: all).")]


@app.command()
def demo(
    output: Output = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repeats of each form.")] = 3,
    threads: Threads = None,
) -> None:
    """Train a GCN on a graph of digits in three precisions, freeze, check and measure it."""

    def job() -> None:
        from bitgnn.train import demo_config

        _run_experiment(demo_config(seeds), output or DEMO_FOLDER, None)

    _guard(job, threads)


@app.command()
def train(
    config: Annotated[Path, typer.Option("--config", "-c", help="YAML file, see configs/.")],
    data_root: Annotated[
        str | None,
        typer.Option(help="Folder of the data sets (default: BITGNN_DATA, else ./data)."),
    ] = None,
    output: Output = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Repeats instead of the configuration's.")
    ] = None,
    threads: Threads = None,
) -> None:
    """Train the forms of a configuration over its seeds, freeze, check and measure them.

    Finished runs stay in the output folder; the same command goes on where it was stopped.
    """

    def job() -> None:
        from bitgnn.train import load_config

        experiment = load_config(config)
        if seeds is not None:
            experiment = experiment.model_copy(update={"seeds": seeds})
        _run_experiment(experiment, output or TRAIN_FOLDER / experiment.name, data_root)

    _guard(job, threads)


@app.command()
def doctor() -> None:
    """Print versions, build, hardware and what is missing."""

    def job() -> None:
        from bitgnn.doctor import report

        typer.echo(report())

    _guard(job, None)


def _run_experiment(experiment: object, output: Path, data_root: str | None) -> None:
    from bitgnn.train import (
        ExperimentConfig,
        RunStore,
        evaluate,
        load_data,
        result_table,
        train_all,
        write_results,
    )

    assert isinstance(experiment, ExperimentConfig)
    console = Console()
    store = RunStore(output, experiment)
    data = load_data(experiment.dataset, data_root)
    title = experiment.dataset.title
    console.print(
        f"{title}: {data.x.size(0)} nodes, {data.edge_index.size(1)} edges, "
        f"{data.x.size(1)} features; {experiment.seeds} seeds"
    )
    try:
        runs = train_all(experiment, data, store, console)
    except KeyboardInterrupt:
        typer.echo(
            f"bitgnn: stopped; finished runs are kept in {output}, the same command goes on",
            err=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    results = evaluate(experiment, data, store, runs)
    threads = torch.get_num_threads()
    console.print(result_table(f"GCN on {title}, {threads} threads", results))
    console.print("Frozen and trained models agree on every node of every seed.")
    written = write_results(output, experiment, data, results)
    console.print("Written: " + ", ".join(str(path) for path in written), soft_wrap=True)


def _guard(job: Callable[[], None], threads: int | None) -> None:
    """Run ``job``; what a user can mend becomes one line and exit status 1."""
    from bitgnn.data import DataError
    from bitgnn.train import ConfigError, MismatchError, OutputError

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        job()
    except (ConfigError, DataError, MismatchError, OutputError, OSError) as error:
        message = " ".join(str(error).split())
        typer.echo(f"bitgnn: error: {message}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
