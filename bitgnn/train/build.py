"""From a configuration to graph, features, model and task."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from bitgnn import models
from bitgnn.data import DataError, load
from bitgnn.data.splits import Split
from bitgnn.models.base import NodeModel
from bitgnn.train.checkpoint import load_state
from bitgnn.train.config import DatasetConfig, ExperimentConfig
from bitgnn.train.features import model_input
from bitgnn.train.recipe import FullGraph, layer_options
from bitgnn.train.task import NodeTask, check_data

__all__ = ["GraphSource", "build_model", "load_data", "make_task", "restore_model"]


def load_data(
    config: DatasetConfig, data_root: str | os.PathLike[str] | None = None, seed: int = 0
) -> Data:
    """The graph a configuration names, with the split of a run.

    Args:
        config: the data set.
        data_root: folder of the data sets; None takes ``BITGNN_DATA``, else ``./data``.
        seed: of the run, where the split depends on it.

    Raises:
        DataError: the name or split is unknown, or files are missing or cannot be read.
    """
    split, split_seed = config.of_run(seed)
    try:
        return load(
            config.name, root=data_root, split=split, seed=split_seed, features=config.features
        )
    except ValueError as error:
        raise DataError(f"dataset: {error}") from error


class GraphSource:
    """Graphs of an experiment's runs, checked; the last one is kept.

    Args:
        config: the experiment.
        data_root: see :func:`load_data`.
    """

    def __init__(
        self, config: ExperimentConfig, data_root: str | os.PathLike[str] | None = None
    ) -> None:
        self.config = config
        self.data_root = data_root
        self._last: tuple[tuple[Split, int], Data] | None = None

    def check(self) -> Data:
        """Load the graph of the last seed, then that of the first, before any work is done.

        Where the split depends on the seed, there may be fewer splits than seeds.

        Returns:
            The graph of the first seed.

        Raises:
            DataError: see :meth:`__call__`.
        """
        self(self.config.seeds - 1)
        return self(0)

    def __call__(self, seed: int) -> Data:
        """The graph of the run with this seed.

        Raises:
            DataError: files are missing or unreadable, or the graph cannot be trained on.
        """
        dataset = self.config.dataset
        key = dataset.of_run(seed)
        if self._last is None or self._last[0] != key:
            data = load_data(dataset, self.data_root, seed)
            check_data(data, self.config.metric, dataset.title)
            self._last = key, data
        return self._last[1]


def build_model(config: ExperimentConfig, form: str, data: Data) -> NodeModel:
    """An untrained model of one form."""
    recipe = config.forms[form]
    arguments: dict[str, Any] = {
        "precision": config.precision(form),
        "dropout": recipe.dropout,
        "input_norm": recipe.input_norm,
        **layer_options(recipe),
    }
    width = model_input(recipe, data.x).size(1)
    sizes = (width, config.hidden_channels, int(data.y.max()) + 1)
    if config.model == "graphsaint":
        return models.GraphSAINT(*sizes, **arguments)
    if config.model == "graphsage":
        return models.GraphSAGE(*sizes, config.num_layers, **arguments)
    if config.inductive:
        return models.GCN(*sizes, config.num_layers, inductive=True, **arguments)
    # Only where every step sees the same graph may layers keep it.
    cached = isinstance(config.loader, FullGraph)
    return models.GCN(*sizes, config.num_layers, cached=cached, **arguments)


def restore_model(
    config: ExperimentConfig, form: str, data: Data, state: Mapping[str, Tensor]
) -> NodeModel:
    """A trained model in evaluation mode.

    Raises:
        CheckpointError: ``state`` is of another model; the message names the keys.
    """
    model = build_model(config, form, data)
    load_state(model, state, f"state of form {form!r}")
    return model.eval()


def make_task(
    config: ExperimentConfig, form: str, data: Data, device: torch.device | str = "cpu"
) -> NodeTask:
    """The graph on a device with the features of a form."""
    x = model_input(config.forms[form], data.x)
    sparse = not isinstance(config.loader, FullGraph)
    return NodeTask.of(data, x, config.metric, device, sparse)
