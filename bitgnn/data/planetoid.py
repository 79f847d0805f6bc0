"""Cora, CiteSeer and PubMed through PyG, offline where the raw files are at hand."""

from __future__ import annotations

import os

from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid

from bitgnn.data.catalog import SOURCES, normalized_name
from bitgnn.data.errors import DataError
from bitgnn.data.reading import read_source

__all__ = ["DataError", "load_planetoid"]

NAMES = ("Cora", "CiteSeer", "PubMed")


def load_planetoid(name: str, root: str | os.PathLike[str] | None = None) -> Data:
    """One of the citation graphs with its public split, features as stored.

    Files are found, copied and downloaded as :func:`bitgnn.data.load` says.

    Args:
        name: ``"Cora"``, ``"CiteSeer"`` or ``"PubMed"``.
        root: data folder; None takes the environment variable ``BITGNN_DATA``, else ``./data``.

    Returns:
        ``Data`` with ``x`` float32 ``[N, F]``, ``edge_index`` int64 ``[2, E]``, ``y`` int64
        ``[N]`` and the boolean masks ``train_mask``, ``val_mask``, ``test_mask``.

    Raises:
        ValueError: ``name`` is none of the three.
        DataError: the files are missing and cannot be downloaded, or cannot be read.
    """
    if name not in NAMES:
        raise ValueError(f"load_planetoid: name must be one of {list(NAMES)}, got {name!r}")
    return read_source(SOURCES[normalized_name(name)], root, Planetoid)
