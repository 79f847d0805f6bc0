"""Trains every form over several seeds, skipping what the output folder already holds."""

from __future__ import annotations

import os
import time

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch_geometric.data import Data

from bitgnn.bench.environment import cpu_model
from bitgnn.data import load_digits_graph, load_planetoid
from bitgnn.models import GCN
from bitgnn.train.config import DatasetConfig, ExperimentConfig, Form, Recipe
from bitgnn.train.loop import row_normalized, train_model
from bitgnn.train.store import Run, RunStore

__all__ = ["build_model", "load_data", "model_input", "restore_model", "train_all"]


def load_data(config: DatasetConfig, data_root: str | os.PathLike[str] | None) -> Data:
    """The graph a configuration names.

    Raises:
        DataError: its files are missing or cannot be read.
    """
    if config.kind == "digits":
        return load_digits_graph()
    assert config.name is not None  # checked with the configuration
    return load_planetoid(config.name, data_root)


def build_model(config: ExperimentConfig, form: Form, data: Data) -> GCN:
    """An untrained model of one form."""
    recipe = config.forms[form]
    return GCN(
        data.x.size(1),
        config.hidden_channels,
        int(data.y.max()) + 1,
        config.num_layers,
        precision=form,
        dropout=recipe.dropout,
        input_norm=recipe.input_norm,
        cached=True,
    )


def restore_model(
    config: ExperimentConfig, form: Form, data: Data, state: dict[str, Tensor]
) -> GCN:
    """A trained model in evaluation mode."""
    model = build_model(config, form, data)
    model.load_state_dict(state)
    return model.eval()


def model_input(recipe: Recipe, data: Data) -> Tensor:
    """Features as the model of a recipe takes them."""
    return row_normalized(data.x) if recipe.normalize_features else data.x


def train_all(config: ExperimentConfig, data: Data, store: RunStore, console: Console) -> list[Run]:
    """Train what is not in ``store`` yet, seed by seed, with a progress bar.

    Args:
        config: the experiment.
        data: its graph.
        store: where finished runs are kept.
        console: where the bar is drawn.

    Returns:
        All runs, by seed, then by form.

    Raises:
        KeyboardInterrupt: stopped by the user; finished runs are in ``store``.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    total = config.seeds * sum(recipe.epochs for _, recipe in config.ordered_forms())
    runs = []
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total)
        for seed in range(config.seeds):
            for form, recipe in config.ordered_forms():
                title = f"{config.dataset.title} {form}, seed {seed + 1}/{config.seeds}"
                progress.update(task, description=title)
                kept = store.load(form, seed)
                if kept is None:
                    runs.append(_train_one(config, form, seed, data, store, progress, task))
                else:
                    runs.append(kept[0])
                    progress.advance(task, recipe.epochs)
    return runs


def _train_one(
    config: ExperimentConfig,
    form: Form,
    seed: int,
    data: Data,
    store: RunStore,
    progress: Progress,
    task: object,
) -> Run:
    recipe = config.forms[form]
    initial = teacher = None
    if recipe.start_from is not None:
        start = store.load(recipe.start_from, seed)
        assert start is not None  # forms are trained in order
        initial = start[1]
        with torch.no_grad():
            source = restore_model(config, recipe.start_from, data, initial)
            features = model_input(config.forms[recipe.start_from], data)
            teacher = source(features, data.edge_index)
    torch.manual_seed(seed)
    model = build_model(config, form, data)
    begin = time.perf_counter()
    trained = train_model(
        model,
        data,
        recipe,
        initial=initial,
        teacher=teacher,
        on_epoch=lambda: progress.advance(task),  # type: ignore[arg-type]
    )
    run = Run(
        form,
        seed,
        trained.test_accuracy,
        trained.val_accuracy,
        trained.val_loss,
        trained.epoch,
        time.perf_counter() - begin,
        f"{cpu_model()}, torch {torch.__version__}",
    )
    store.save(run, trained.state)
    return run
