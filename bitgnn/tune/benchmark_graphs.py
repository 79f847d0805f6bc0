"""The graphs that the tuner is judged on, as data to train on and as workloads to time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from bitgnn import models
from bitgnn.data import DataError, load, synthetic
from bitgnn.tune.workload import Workload

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["GRAPHS", "HIDDEN", "load_graph", "untrained_workload"]

SEED = 0
HIDDEN = {"flickr": 256, "reddit_eighth": 128, "reddit": 128}
"""Hidden widths of models; 64 for the other graphs."""
SMALL_HIDDEN = 64
EIGHTH_EDGES, EIGHTH_HOMOPHILY = 14_326_986, 0.25
"""An eighth of Reddit's edges; classes of that size could not hold Reddit's share of them."""

Root = str | os.PathLike[str] | None


def _real(name: str) -> Callable[[Root], Data]:
    return lambda root: load(name, root)


def _flickr(root: Root) -> Data:
    """Real where its features are at hand, else its structure with features made up."""
    try:
        return load("Flickr", root)
    except (DataError, OSError):
        return load("Flickr", root, features="synthetic")


GRAPHS: Mapping[str, Callable[[Root], Data]] = {
    "cora": _real("Cora"),
    "pubmed": _real("PubMed"),
    "photo": _real("Photo"),
    "cs": _real("CS"),
    "cornell5": _real("Cornell5"),
    "flickr": _flickr,
    "reddit_eighth": lambda root: synthetic(
        "reddit", EIGHTH_EDGES, homophily=EIGHTH_HOMOPHILY, scale=1 / 8, seed=SEED
    ),
    "reddit": lambda root: synthetic("reddit", seed=SEED),
}
"""Loaders by key; each takes the data folder."""


def load_graph(key: str, root: Root = None) -> Data:
    """The graph of this key; its ``name`` says what is made up.

    Args:
        key: one of :data:`GRAPHS`.
        root: data folder, see :func:`bitgnn.data.load`.

    Raises:
        DataError: its files cannot be had.
        ValueError: unknown key.
    """
    if key not in GRAPHS:
        raise ValueError(f"load_graph: key must be one of {list(GRAPHS)}, got {key!r}")
    return GRAPHS[key](root)


def untrained_workload(data: Data, kind: str, hidden: int, device: torch.device | str) -> Workload:
    """A binary model with random weights and the features' own statistics, fast as a trained one.

    Args:
        data: the graph.
        kind: name of a model of :mod:`bitgnn.models`.
        hidden: hidden width.
        device: where to measure.
    """
    torch.manual_seed(SEED)
    classes = int(data.y.max()) + 1
    model = getattr(models, kind)(data.x.size(1), hidden, classes, precision="bin")
    norm = getattr(model, "norm", None)
    if norm is not None:
        # One pass with a cumulative average makes the running statistics those of the data.
        norm.momentum = None
        with torch.no_grad():
            norm(data.x)
    return Workload.of(model.eval(), data, device=device)
