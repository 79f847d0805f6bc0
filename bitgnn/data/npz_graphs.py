"""Graphs in ``.npz`` files, without pickles and within bounds of size."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.utils import remove_self_loops

from bitgnn._files import FileError
from bitgnn.data.splits import MASKS

Found = dict[str, tuple[str, Tensor]]
"""Key in the source and tensor of each attribute of the graph."""

ARRAY_BYTES = 1 << 36
"""Most bytes of all arrays of a file as they are read, decompressed or made dense."""
SMALL_BYTES, MOST_RATIO = 1 << 30, 1024
"""Files may ask for so much in any case, and for so many times their own bytes."""
MEMBER = ".npy"
ATTRIBUTES, ADJACENCY = "attr", "adj"
CSR = ("data", "indices", "indptr", "shape")
SEVERAL = "_masks"
"""End of the keys of splits that stand in rows."""
EDGES = "edges"
BOTH_WAYS = (f"{ADJACENCY}_data", EDGES)
"""Keys of edges of which one direction is enough."""
KEYS = {
    "x": ("x", "features", "node_features"),
    "edge_index": ("edge_index", EDGES),
    "edge_weight": ("edge_weight",),
    "y": ("y", "labels", "node_labels"),
    **{name: (name, f"{name}s") for name in MASKS},
}
HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
PLAIN: dict[str, Any] = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float32}
"""Types by the kind of what is read."""
DAMAGED = (
    OSError, ValueError, EOFError, RuntimeError, NotImplementedError, MemoryError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def read_npz(path: Path) -> Found:
    """Read the parts of a graph from a file; :func:`bitgnn.data.read_graph` lists the keys."""
    sparse = [f"{prefix}_{part}" for prefix in (ATTRIBUTES, ADJACENCY) for part in CSR]
    room = _Room(path)
    arrays = _read_arrays(path, [*sparse, *(key for keys in KEYS.values() for key in keys)], room)
    found: Found = {}
    for name, keys in KEYS.items():
        key = next((key for key in keys if key in arrays), None)
        if key is not None:
            tensor = torch.from_numpy(arrays[key])
            is_turned = key == EDGES or key.endswith(SEVERAL)
            found[name] = key, tensor.t() if is_turned and tensor.dim() == 2 else tensor
    if "x" not in found and f"{ATTRIBUTES}_data" in arrays:
        matrix = _sparse(arrays, ATTRIBUTES, path)
        try:
            room.take(math.prod(matrix.shape) * 4)
        except ValueError as error:
            raise FileError(f"{path}: {ATTRIBUTES}_shape: {error}") from None
        dense = np.asarray(matrix.todense(), dtype=np.float32)
        found["x"] = f"{ATTRIBUTES}_data", torch.from_numpy(dense)
    if "edge_index" not in found and f"{ADJACENCY}_data" in arrays:
        places = _sparse(arrays, ADJACENCY, path).tocoo()
        pairs = np.stack([places.row, places.col]).astype(np.int64)
        key, weight = f"{ADJACENCY}_data", torch.from_numpy(places.data)
        edge_index, weight = remove_self_loops(torch.from_numpy(pairs), weight)
        found["edge_index"] = key, edge_index
        if bool((weight != 1).any()):
            found["edge_weight"] = key, weight
    return found


class _Room:
    """Memory that a file may still ask for."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FileError(f"{path}: no such file")
        self.most = min(ARRAY_BYTES, max(SMALL_BYTES, MOST_RATIO * path.stat().st_size))
        self.left = self.most

    def take(self, size: int) -> None:
        """Refuse bytes that are more than the file may ask for."""
        if size > self.left:
            taken = self.most - self.left
            raise ValueError(
                f"asks for {size} bytes of memory beside {taken}, a file of this size may ask for "
                f"{self.most}"
            )
        self.left -= size


def _read_arrays(path: Path, keys: Iterable[str], room: _Room) -> dict[str, np.ndarray]:
    """Read the arrays of a file under these keys: features as float32, booleans, int64."""
    found = {}
    key = None
    try:
        with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as file:
            for key in keys:
                if f"{key}{MEMBER}" in archive.namelist():
                    kind = _check_header(archive, key, room)
                    found[key] = file[key].astype(kind, copy=False)
    except DAMAGED as error:
        where = path if key is None else f"{path}: {key}"
        reason = str(error) or type(error).__name__
        raise FileError(f"{where}: cannot be read ({reason})") from error
    return found


def _check_header(archive: zipfile.ZipFile, key: str, room: _Room) -> Any:
    """Type to read an array as; refuse it before memory is taken for it."""
    info = archive.getinfo(f"{key}{MEMBER}")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in HEADERS:
            raise ValueError(f"version {version} of the format is unknown")
        shape, _, dtype = HEADERS[version](member)
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind not in PLAIN:
            raise ValueError(f"must hold booleans or real numbers, got {dtype}")
        found = np.dtype(np.float32 if key in KEYS["x"] else PLAIN[dtype.kind])
        room.take(size + (0 if dtype == found else math.prod(shape) * found.itemsize))
        if size != info.file_size - member.tell():
            raise ValueError(f"must have {size} bytes, got {info.file_size - member.tell()}")
        return found


def _sparse(arrays: dict[str, np.ndarray], prefix: str, path: Path) -> Any:
    """The matrix of ``<prefix>_data`` and the others of :data:`CSR`."""
    missing = [key for part in CSR if (key := f"{prefix}_{part}") not in arrays]
    if missing:
        raise FileError(f"{path}: {', '.join(missing)} missing")
    data, indices, indptr, shape = (arrays[f"{prefix}_{part}"] for part in CSR)
    try:
        if shape.shape != (2,) or shape.dtype != np.int64:
            raise ValueError(f"{prefix}_shape must be two integers")
        matrix = sp.csr_matrix((data, indices, indptr), tuple(int(length) for length in shape))
        matrix.check_format(full_check=True)  # other columns would be written out of bounds
    except (ValueError, TypeError, IndexError) as error:
        raise FileError(f"{path}: {prefix}_*: no CSR matrix ({error})") from error
    return matrix
