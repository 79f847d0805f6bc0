"""The graphs that the tuner is judged on, and untrained models to time on them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch_geometric.data import Data

from bench.tasks import NodeTask, load_task, untrained_model
from bench.tuner.structures import read_structure
from bitgnn.data import load
from bitgnn.data.files import data_root
from bitgnn.tune.workload import Workload

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
    """The graph of this key; its name says what is made up."""
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


def untrained_workload(task: NodeTask, kind: str) -> Workload:
    """A binary model that was never trained, where the graph is; labels are random."""
    generator = torch.Generator().manual_seed(SEED)
    labels = torch.randint(task.num_classes, (task.num_nodes,), generator=generator)
    is_validation = torch.arange(task.num_nodes) % VALIDATION == 0
    data = Data(x=task.x, edge_index=task.edge_index, y=labels, val_mask=is_validation)
    return Workload.of(untrained_model(task, kind, "bin"), data)
