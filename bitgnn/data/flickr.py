"""Flickr's real structure, labels and split with made-up features."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bitgnn.data.files import DataError, RawFiles, data_root
from bitgnn.data.splits import MASKS
from bitgnn.data.synthetic_graphs import class_features

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["FLICKR_TITLE", "read_flickr_structure"]

FLICKR_TITLE = "Flickr (synthetic features)"
NUM_FEATURES = 500
ROLES = ("tr", "va", "te")
FILES = RawFiles(
    FLICKR_TITLE, "", "flickr", ("raw/adj_full.npz", "raw/class_map.json", "raw/role.json")
)


def read_flickr_structure(root: str | os.PathLike[str] | None, seed: int = 0) -> Data:
    """Flickr without ``feats.npy``: features are made up from the classes.

    See :func:`~bitgnn.data.synthetic_graphs.class_features`. The raw files are only read.

    Args:
        root: data folder, see :func:`bitgnn.data.load`.
        seed: of the features.

    Raises:
        DataError: the other three raw files are missing or cannot be read.
    """
    from torch_geometric.data import Data

    folder = data_root(root)
    base = FILES.find(folder)
    if base is None:
        raise DataError(
            f"{FLICKR_TITLE}: raw files not found under {folder}. {FILES.advice(folder)}"
        )
    raw = base / FILES.folder / "raw"
    try:
        with np.load(raw / "adj_full.npz") as file:
            rowptr, columns = file["indptr"], file["indices"]
        classes = json.loads((raw / "class_map.json").read_text())
        roles = json.loads((raw / "role.json").read_text())
        y = _labels(classes, len(rowptr) - 1)
        masks = _masks(roles, len(y))
        rows = np.repeat(np.arange(len(y), dtype=np.int64), np.diff(rowptr))
        edge_index = torch.from_numpy(np.stack([rows, columns.astype(np.int64)]))
    except Exception as error:
        raise DataError(f"{FLICKR_TITLE}: files in {raw} cannot be read: {error}") from error
    x = class_features(y, NUM_FEATURES, generator=np.random.default_rng(seed))
    return Data(x=x, edge_index=edge_index, y=y, **masks)


def _labels(classes: dict[str, int], num_nodes: int) -> Tensor:
    y = torch.full((num_nodes,), -1)
    y[torch.tensor([int(node) for node in classes])] = torch.tensor(list(classes.values()))
    return y


def _masks(roles: dict[str, Any], num_nodes: int) -> dict[str, Tensor]:
    empty = torch.zeros(num_nodes, dtype=torch.bool)
    return {
        key: empty.index_fill(0, torch.tensor(roles[role], dtype=torch.int64), True)
        for key, role in zip(MASKS, ROLES, strict=True)
    }
