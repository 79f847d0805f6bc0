"""From a configuration to graph, features, model and task."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.data import Data

from bitgnn import models
from bitgnn.data import DataError, load
from bitgnn.data.splits import Split
from bitgnn.models.base import NodeModel
from bitgnn.train.checkpoint import load_state
from bitgnn.train.config import ExperimentConfig
from bitgnn.train.recipe import FullGraph, Recipe, layer_options
from bitgnn.train.task import NodeTask, check_data

_kept: MutableMapping[Tensor, dict[tuple[bool, int | None], Tensor]] = WeakTensorKeyDictionary()


def row_normalized(x: Tensor) -> Tensor:
    """Rows divided by their sums, empty rows left alone."""
    return x / x.sum(dim=1, keepdim=True).clamp(min=1e-12)


def thermometer(x: Tensor, levels: int) -> Tensor:
    """Each column as bits that tell which of its quantiles a value exceeds.

    A sign keeps one bit of a feature; where there are few of them that is too little. Bit ``j`` of
    a column is ``x > q_j`` with the quantile at ``j / (levels + 1)``, ``j = 1 ... levels``. Bits
    that are the same for all nodes are left out.

    Args:
        x: ``[N, F]`` floats.
        levels: quantiles of a column.

    Returns:
        ``[N, K]`` zeros and ones of the dtype of ``x``, ``K <= F * levels``.
    """
    places = np.arange(1, levels + 1) / (levels + 1)
    # NumPy selects the quantiles; torch.quantile sorts, which takes four times as long.
    columns = x.t().contiguous().cpu().numpy()
    cuts = torch.from_numpy(np.quantile(columns, places, axis=1)).t().to(x)
    bits = (x.unsqueeze(2) > cuts).flatten(1)
    ones = bits.sum(dim=0)
    return bits[:, (ones > 0) & (ones < len(bits))].to(x.dtype)


def model_input(recipe: Recipe, x: Tensor) -> Tensor:
    """Features as the model of a recipe takes them; what takes long is kept as long as ``x``.

    Args:
        recipe: the recipe.
        x: ``[N, F]`` raw features.
    """
    raw, key = x, (recipe.normalize_features, recipe.thermometer)
    kept = _kept.get(raw, {})
    if key in kept:
        return kept[key]
    if recipe.normalize_features:
        x = row_normalized(x)
    if recipe.thermometer is not None:
        x = thermometer(x, recipe.thermometer)
        _kept[raw] = {**kept, key: x}
    return x


class GraphSource:
    """Graphs of an experiment's runs, checked; the last one is kept.

    Args:
        config: the experiment.
        data_root: folder of the data sets; None takes ``BITGNN_DATA``, else ``./data``.
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
            split, split_seed = key
            try:
                data = load(
                    dataset.name,
                    self.data_root,
                    split=split,
                    seed=split_seed,
                    features=dataset.features,
                )
            except ValueError as error:
                raise DataError(f"dataset: {error}") from error
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
