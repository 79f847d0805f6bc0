"""ogbn-arxiv and ogbn-products through the ogb package."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.utils import to_undirected

from bitgnn.data.files import DataError, RawFiles, data_root, without_leftovers
from bitgnn.data.pyg_datasets import INCOMPLETE
from bitgnn.data.splits import MASKS

COLLECTION = "ogb"
RELEASE = "RELEASE_v1.txt"
TABLES = ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list")
PARTS = ("train", "valid", "test")
# Folder of the split, and tables beside the usual ones.
OGB_NAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    "ogbn-arxiv": ("time", ("node_year",)),
    "ogbn-products": ("sales_ranking", ()),
}
KEPT = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
"""Classes of the graph that ogb stores, without letting ``torch.load`` read it as data."""


def read_ogb(name: str, root: str | os.PathLike[str] | None) -> Data:
    """One of the two graphs, undirected, with its public split.

    ogb reads compressed tables and keeps what it made of them in ``processed/``, which it loads
    by ``torch.load`` with weights only: nothing of a user's is executed.
    """
    try:
        from ogb.nodeproppred import PygNodePropPredDataset
    except ImportError as error:
        raise DataError(f"{name}: needs the package ogb: pip install 'bitgnn[ogb]'") from error
    split, further = OGB_NAMES[name]
    files = RawFiles(
        name,
        COLLECTION,
        name.replace("-", "_"),
        (
            RELEASE,
            *(f"raw/{table}.csv.gz" for table in (*TABLES, *further)),
            *(f"split/{split}/{part}.csv.gz" for part in PARTS),
        ),
    )
    folder = data_root(root)
    found = files.find(folder)
    base = _downloaded(PygNodePropPredDataset, files, folder) if found is None else found
    base = files.writable(base)
    try:
        with torch.serialization.safe_globals(KEPT):
            dataset = PygNodePropPredDataset(name, root=str(base))
            data, parts = dataset[0], dataset.get_idx_split()
    except Exception as error:
        raise DataError(
            f"{name}: files in {base / files.folder} cannot be read: {error}"
        ) from error
    data.edge_index = to_undirected(data.edge_index, num_nodes=data.x.size(0))
    for key, part in zip(MASKS, PARTS, strict=True):
        data[key] = torch.zeros(data.x.size(0), dtype=torch.bool).index_fill_(0, parts[part], True)
    return data


def _downloaded(dataset_class: Any, files: RawFiles, root: Path) -> Path:
    """Download and unpack next to the data set's folder, then move the files into it."""
    base = files.download_base(root)
    target = base / files.folder
    if target.exists() and any(path.is_file() for path in target.rglob("*")):
        raise DataError(
            f"{files.title}: {target} is incomplete, {', '.join(files.missing(base))} missing; "
            "add the files, or move the folder away to have all of them downloaded"
        )
    staging = base / (files.folder + INCOMPLETE)
    unpacked = staging / files.folder
    with without_leftovers(staging):
        try:
            shutil.rmtree(staging, ignore_errors=True)  # an interruption may have left part of it
            with _without_questions(), torch.serialization.safe_globals(KEPT):
                dataset_class(files.title, root=str(staging))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(target, ignore_errors=True)
            unpacked.replace(target)
            shutil.rmtree(staging)
        except Exception as error:
            shutil.rmtree(staging, ignore_errors=True)
            reason = str(error) or type(error).__name__
            raise DataError(
                f"{files.title}: files not found under {root} and not downloaded ({reason}). "
                f"{files.advice(root)}"
            ) from error
    return base


@contextlib.contextmanager
def _without_questions() -> Iterator[None]:
    """Keep ogb from asking questions on the terminal."""
    import ogb.nodeproppred.dataset_pyg as module

    asks = module.decide_download
    try:
        module.decide_download = lambda url: True
        yield
    finally:
        module.decide_download = asks
