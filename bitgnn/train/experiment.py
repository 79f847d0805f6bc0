"""Trains every form over several seeds, skipping what the output folder already holds."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch_geometric.data import Data

from bitgnn.train.config import DatasetConfig, ExperimentConfig, Recipe
from bitgnn.train.run import RunOptions, train_run
from bitgnn.train.store import Run, RunStore


def make_progress(console: Console, *, in_thread: bool = True) -> Progress:
    """The progress bar of trainings.

    Args:
        console: where it is drawn.
        in_thread: whether a thread draws it now and then; otherwise it is drawn where an update
            asks for it, so that nothing else runs in between, such as while something is timed.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, auto_refresh=in_thread)


def train_all(
    config: ExperimentConfig,
    graphs: Callable[[int], Data],
    store: RunStore,
    console: Console,
    options: RunOptions | None = None,
) -> list[Run]:
    """Train what is not in ``store`` yet, seed by seed, with a progress bar.

    Args:
        config: the experiment.
        graphs: gives the graph of a seed, such as :class:`~bitgnn.train.build.GraphSource`.
        store: where finished runs are kept.
        console: where the bar is drawn.
        options: device and the like; None is ``RunOptions()``.

    Returns:
        All runs, by seed, then by form.

    Raises:
        KeyboardInterrupt: stopped by the user; finished runs are in ``store``, the one under way
            goes on from its checkpoint.
    """
    options = options or RunOptions()
    total = config.seeds * sum(recipe.epochs for recipe in config.forms.values())
    runs = []
    with make_progress(console) as progress:
        task = progress.add_task("", total=total)
        for seed in range(config.seeds):
            data = graphs(seed)
            for form in config.forms:
                title = f"{config.dataset.title} {form}, seed {seed + 1}/{config.seeds}"
                progress.update(task, description=title)
                run = train_run(
                    config, form, seed, data, store, options,
                    lambda count: progress.advance(task, count),
                )  # fmt: skip
                runs.append(run)
    return runs


def demo_config(seeds: int) -> ExperimentConfig:
    """Configuration of ``bitgnn demo``.

    Args:
        seeds: number of repeats.
    """
    return ExperimentConfig(
        name="demo",
        dataset=DatasetConfig(name="digits"),
        hidden_channels=128,
        seeds=seeds,
        forms={
            "fp32": Recipe(
                epochs=200, learning_rate=0.01, weight_decay=5e-4, dropout=0.5, input_norm=False
            ),
            "full": Recipe(epochs=300, learning_rate=0.003, dropout=0.2),
            "bin": Recipe(
                epochs=300,
                learning_rate=0.003,
                schedule="cosine",
                dropout=0.2,
                start_from="full",
                distill=1.0,
            ),
        },
    )
