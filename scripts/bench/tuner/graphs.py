"""The graphs that the tuner is judged on, and untrained models to time on them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch_geometric.data import Data

from bench.tasks import NodeTask, load_task
from bench.tuner.structures import read_structure
from bitgnn import models
from bitgnn.data import load
from bitgnn.data.files import data_root
from bitgnn.tune.workload import Workload

__all__ = ["GRAPHS", "load_graph", "untrained_model", "untrained_workload"]

SEED = 0
NAMES = {"photo": "Photo", "cs": "CS", "cornell5": "Cornell5"}
"""Graphs that the whole-model benchmark has not; the others are its own."""
GRAPHS = ("cora", "pubmed", *NAMES, "flickr", "reddit_eighth", "reddit")
VALIDATION = 10
"""One node of so many is a validation node: scores do not matter, but there must be some."""


def load_graph(
    key: str,
    device: str = "cpu",
    root: str | Path | None = None,
    structures: Path | None = None,
) -> NodeTask:
    """The graph of this key; its name says what is made up.

    Args:
        key: one of :data:`GRAPHS`.
        device: ``"cpu"`` or ``"cuda"``; synthetic graphs differ between the two.
        root: data folder, see :func:`bitgnn.data.load`.
        structures: file of :func:`~bench.tuner.structures.write_structures`, from which graphs that
            it holds are taken.

    Raises:
        DataError: its files cannot be had.
        OSError: ``structures`` or Flickr's structure cannot be read.
        ValueError: unknown key, or ``structures`` is something else.
    """
    if key not in GRAPHS:
        raise ValueError(f"load_graph: key must be one of {list(GRAPHS)}, got {key!r}")
    found = None if structures is None else read_structure(structures, key, device)
    if found is not None:
        return found
    if key not in NAMES:
        return load_task(key, device, data_root(root))
    data = load(NAMES[key], root)
    classes = int(data.y.max()) + 1
    return NodeTask(data.name, data.x.to(device), data.edge_index.to(device), classes)


def untrained_model(task: NodeTask, kind: str, precision: str) -> nn.Module:
    """A model with random weights and the features' own statistics, fast as a trained one.

    Args:
        task: the graph.
        kind: name of a model of :mod:`bitgnn.models`.
        precision: preset of its layers.
    """
    torch.manual_seed(SEED)
    hidden = task.hidden_channels(kind)
    model = getattr(models, kind)(task.x.size(1), hidden, task.num_classes, precision=precision)
    model = model.to(task.x.device)
    norm = getattr(model, "norm", None)
    if norm is not None:
        # One pass with a cumulative average makes the running statistics those of the data.
        norm.momentum = None
        with torch.no_grad():
            norm(task.x)
    made: nn.Module = model.eval()
    return made


def untrained_workload(task: NodeTask, kind: str) -> Workload:
    """A binary model that was never trained, where the graph is; labels are random.

    Args:
        task: the graph.
        kind: name of a model of :mod:`bitgnn.models`.
    """
    generator = torch.Generator().manual_seed(SEED)
    labels = torch.randint(task.num_classes, (task.num_nodes,), generator=generator)
    is_validation = torch.arange(task.num_nodes) % VALIDATION == 0
    data = Data(x=task.x, edge_index=task.edge_index, y=labels, val_mask=is_validation)
    return Workload.of(untrained_model(task, kind, "bin"), data)
