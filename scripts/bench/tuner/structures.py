"""Structures of graphs in one small file, for machines that lack their data sets; features made up.

What a forward costs depends on the edges, the sizes and how many features are not 0, not on what
the features are.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bench.tasks import NodeTask
from bitgnn._files import write_atomically

SEED = 0
MADE_UP = " (made-up features)"


def write_structures(path: Path, tasks: Mapping[str, NodeTask]) -> None:
    """Write edges and sizes of some graphs."""
    arrays: dict[str, np.ndarray] = {}
    for key, task in tasks.items():
        source, destination = task.edge_index.cpu()
        source = source[torch.argsort(destination, stable=True)]
        arrays |= {
            f"{key}/name": np.array(task.name),
            f"{key}/sizes": np.array([task.x.size(1), task.num_classes, task.hidden]),
            f"{key}/density": np.array(float((task.x != 0).double().mean())),
            f"{key}/degrees": _small(torch.bincount(destination, minlength=task.num_nodes)),
            f"{key}/sources": _small(source),
        }
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    write_atomically(path, file.getvalue())


def _small(values: Tensor) -> np.ndarray:
    """In the narrowest unsigned type that holds them."""
    found = values.numpy()
    return found.astype(np.min_scalar_type(int(found.max(initial=0))))


def read_structure(path: Path, key: str, device: str) -> NodeTask | None:
    """A graph with features that are 1 as often as its own are not 0, and 0 else.

    Returns:
        None where the file lacks this graph.
    """
    try:
        with np.load(path) as file:
            if f"{key}/name" not in file:
                return None
            name = str(file[f"{key}/name"])
            features, classes, hidden = map(int, file[f"{key}/sizes"])
            density = float(file[f"{key}/density"])
            degrees, sources = (
                torch.from_numpy(file[f"{key}/{part}"].astype(np.int64))
                for part in ("degrees", "sources")
            )
        destinations = torch.repeat_interleave(torch.arange(len(degrees)), degrees)
        edges = torch.stack([sources, destinations])
    except (EOFError, KeyError, TypeError, ValueError, RuntimeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no file of structures: {error}") from None
    generator = torch.Generator().manual_seed(SEED)
    x = (torch.rand(len(degrees), features, generator=generator) < density).float()
    return NodeTask(name + MADE_UP, x.to(device), edges.to(device), classes, hidden)
