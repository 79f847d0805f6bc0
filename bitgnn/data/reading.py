"""Reads PyG data sets from raw files, downloaded where there are none; Flickr without features."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bitgnn.data.catalog import Source
from bitgnn.data.files import DataError, RawFiles, data_root
from bitgnn.data.splits import MASKS
from bitgnn.data.synthetic_graphs import class_features

if TYPE_CHECKING:
    from torch_geometric.data import Data

FLICKR_TITLE = "Flickr (synthetic features)"
FLICKR_FEATURES = 500
ROLES = ("tr", "va", "te")
FLICKR_FILES = RawFiles(
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
    base = FLICKR_FILES.find(folder)
    if base is None:
        raise DataError(
            f"{FLICKR_TITLE}: raw files not found under {folder}. {FLICKR_FILES.advice(folder)}"
        )
    raw = base / FLICKR_FILES.folder / "raw"
    try:
        with np.load(raw / "adj_full.npz") as file:
            rowptr, columns = file["indptr"], file["indices"]
        classes = json.loads((raw / "class_map.json").read_text())
        roles = json.loads((raw / "role.json").read_text())
        y = _flickr_labels(classes, len(rowptr) - 1)
        masks = _flickr_masks(roles, len(y))
        rows = np.repeat(np.arange(len(y), dtype=np.int64), np.diff(rowptr))
        edge_index = torch.from_numpy(np.stack([rows, columns.astype(np.int64)]))
    except Exception as error:
        raise DataError(f"{FLICKR_TITLE}: files in {raw} cannot be read: {error}") from error
    x = class_features(y, FLICKR_FEATURES, generator=np.random.default_rng(seed))
    return Data(x=x, edge_index=edge_index, y=y, **masks)


def _flickr_labels(classes: dict[str, int], num_nodes: int) -> Tensor:
    y = torch.full((num_nodes,), -1)
    y[torch.tensor([int(node) for node in classes])] = torch.tensor(list(classes.values()))
    return y


def _flickr_masks(roles: dict[str, Any], num_nodes: int) -> dict[str, Tensor]:
    empty = torch.zeros(num_nodes, dtype=torch.bool)
    return {
        key: empty.index_fill(0, torch.tensor(roles[role], dtype=torch.int64), True)
        for key, role in zip(MASKS, ROLES, strict=True)
    }


def read_source(source: Source, root: str | os.PathLike[str] | None) -> Data:
    """The graph of a data set, as PyG gives it.

    Args:
        source: which.
        root: data folder; None takes the environment variable ``BITGNN_DATA``, else ``./data``.

    Raises:
        DataError: the files are missing and cannot be downloaded, or cannot be read.
    """
    folder, files = data_root(root), source.files
    found = files.find(folder)
    if found is not None:
        base = files.writable(found)
        try:
            return source.open(str(base))[0]
        except Exception as error:
            place = base / source.folder
            made = " and ".join(str(place / name) for name in files.made if (place / name).exists())
            hint = f"; {made} may be left over from an interruption: delete it" if made else ""
            raise DataError(
                f"{source.name}: files in {place} cannot be read: {error}{hint}"
            ) from error
    base = files.download_base(folder)
    with without_leftovers(base / source.folder):
        try:
            return source.open(str(base))[0]
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise DataError(
                f"{source.name}: raw files not found under {folder} and not downloaded "
                f"({reason}). {files.advice(folder)}"
            ) from error


@contextlib.contextmanager
def without_leftovers(folder: Path) -> Iterator[None]:
    """When the block inside fails, remove folders that are empty and were not there before."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    try:
        yield
    except BaseException:
        inner = sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True)
        for path in [*inner, folder, *folder.parents]:
            if path == existing:
                break
            with contextlib.suppress(OSError):  # not empty, or never made
                path.rmdir()
        raise
