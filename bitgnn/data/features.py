"""PackedFeatureStore: packed features in mapped safetensors files, as PyG's feature store."""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import shutil
import stat
import struct
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from bitgnn._checks import name_type
from bitgnn._files import FileError, atomic_file
from bitgnn._plain import parse_json
from bitgnn.bits import BitFeatures, BitTensor
from bitgnn.bits.tensor import words_for

FEATURES = "x"
"""Name of the attribute that files hold."""
FORMAT = "bitgnn.features"
VERSION = "1"
HEADER_BYTES = 1024
"""Length of the header with the number in front of it; it is written last, in its place."""
CHUNK_BYTES = 1 << 24
_LENGTH = struct.Struct("<Q")
_TYPES = {"words": ("I32", np.dtype("<i4")), "scale": ("F32", np.dtype("<f4"))}


class PackedFeatureStore(FeatureStore, GraphStore):
    """Packed features of any size in files, beside a graph and labels in memory.

    :class:`~bitgnn.data.NeighborLoader` and PyG's loaders take it in both roles, as a pair
    ``(store, store)``. Rows are read from the mapped file when a batch needs them and are
    :class:`~bitgnn.bits.BitFeatures`. Other tensors, labels for example, and edge indices are put
    in as PyG's stores have it::

        PackedFeatureStore.write("x.safetensors", blocks, edge_index)
        store = PackedFeatureStore("x.safetensors")
        store.put_edge_index(edge_index, edge_type=None, layout="coo", size=(n, n))
        store.put_tensor(y, group_name=None, attr_name="y", index=None)

    Args:
        files: the file of the nodes' features; of a heterogeneous graph one for each node type.

    Raises:
        FileError: a file is cut short, altered or of another kind.
        OSError: a file cannot be read.
    """

    def __init__(
        self, files: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]
    ) -> None:
        super().__init__()
        named = files if isinstance(files, Mapping) else {None: files}
        self._files = {group: FeatureFile(path) for group, path in named.items()}
        self._tensors: dict[tuple[Any, Any], Any] = {}
        self._edges: dict[tuple[Any, ...], Any] = {}

    @staticmethod
    def write(
        path: str | os.PathLike[str], blocks: Iterable[Any], edge_index: Tensor | None = None
    ) -> None:
        """Write a file of features block by block; it appears whole or not at all.

        The file is one of safetensors with ``words`` int32 ``[N, ceil(size / 32)]``, ``scale``
        float32 ``[N]`` where the blocks have one, and the number of features, a SHA-256 of both
        tensors and the digest of the graph as metadata.

        Args:
            path: the file; its folder exists.
            blocks: ``BitTensor`` or floats ``[n, size]``, in the order of the nodes; memory holds
                one at a time.
            edge_index: ``[2, E]``, the graph that they belong to, which the store then insists on.

        Raises:
            TypeError: a block is of another kind.
            ValueError: there is no block, or sizes or scales differ.
            OSError: the file cannot be written.
        """
        target = Path(path)
        first, rows, digest = None, 0, hashlib.sha256()
        with atomic_file(target) as file, tempfile.TemporaryFile(dir=target.parent) as scales:
            file.write(bytes(HEADER_BYTES))
            for place, block in enumerate(blocks):
                bits = _packed(place, block)
                kind = int(bits.size), bits.scale is not None
                first = first or kind
                if kind != first:
                    raise ValueError(
                        f"write_features: blocks must have {_kind(first)} like the first, got "
                        f"{_kind(kind)} in block {place}"
                    )
                words = _bytes(bits.words, "words")
                file.write(words)
                digest.update(words)
                if bits.scale is not None:
                    scales.write(_bytes(bits.scale, "scale"))
                rows += len(bits)
            if first is None:
                raise ValueError("write_features: blocks must hold at least one block")
            scales.seek(0)
            while chunk := scales.read(CHUNK_BYTES):
                digest.update(chunk)
            scales.seek(0)
            shutil.copyfileobj(scales, file, CHUNK_BYTES)
            metadata = {
                "format": FORMAT,
                "version": VERSION,
                "size": str(first[0]),
                "sha256": digest.hexdigest(),
                "graph": "" if edge_index is None else _graph_digest(edge_index),
            }
            file.seek(0)
            file.write(_header(rows, *first, metadata))

    def verify(self) -> None:
        """Read every file once and compare it with its checksum.

        Raises:
            FileError: they differ.
        """
        for file in self._files.values():
            file.verify()

    # FeatureStore

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        if self._file(attr) is not None:
            raise ValueError(f"PackedFeatureStore: {attr.attr_name} is read from a file; write it")
        if attr.index is not None:
            raise ValueError("PackedFeatureStore: index must be None where a tensor is put in")
        self._tensors[attr.group_name, attr.attr_name] = tensor
        return True

    def _get_tensor(self, attr: TensorAttr) -> Any:
        file = self._file(attr)
        if file is not None:
            return file.rows(attr.index)
        key = attr.group_name, attr.attr_name
        if key not in self._tensors:
            raise KeyError(f"PackedFeatureStore: there is no tensor for {attr}")
        tensor = self._tensors[key]
        return tensor if attr.index is None else tensor[attr.index]

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        return self._tensors.pop((attr.group_name, attr.attr_name), None) is not None

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        file = self._file(attr)
        tensor = self._tensors.get((attr.group_name, attr.attr_name)) if file is None else file
        return None if tensor is None else tuple(tensor.shape)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Features of each file, and tensors that were put in."""
        keys = [*((group, FEATURES) for group in self._files), *self._tensors]
        return [TensorAttr(*key) for key in keys]

    def _file(self, attr: TensorAttr) -> FeatureFile | None:
        return self._files.get(attr.group_name) if attr.attr_name == FEATURES else None

    # GraphStore

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        kind, size = edge_attr.edge_type, edge_attr.size
        is_coo = edge_attr.layout == EdgeLayout.COO
        for side, group in enumerate((None, None) if kind is None else (kind[0], kind[-1])):
            file = self._files.get(group)
            if file is None:
                continue
            rows = file.shape[0]
            nodes = rows if size is None or size[side] is None else size[side]
            if is_coo and edge_index[side].numel():
                nodes = max(nodes, int(edge_index[side].max()) + 1)
            if nodes != rows:
                raise FileError(
                    f"{file.path}: holds features of {rows} nodes, the graph has {nodes}"
                )
            if is_coo and kind is None:
                file.check_graph(edge_index)
        self._edges[_edge_key(edge_attr)] = edge_index
        return True

    def _get_edge_index(self, edge_attr: EdgeAttr) -> Any:
        return self._edges.get(_edge_key(edge_attr))

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        return self._edges.pop(_edge_key(edge_attr), None) is not None

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Edge indices that were put in."""
        return [EdgeAttr(*key) for key in self._edges]


def _edge_key(attr: EdgeAttr) -> tuple[Any, ...]:
    return attr.edge_type, attr.layout, attr.is_sorted, attr.size


class FeatureFile:
    """Packed features of a file, mapped into memory: what is read of them is what is loaded."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # A pipe without a writer would be waited for.
        handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise FileError(f"{self.path}: must be a regular file")
            self._bytes = status.st_size
            self._metadata, rows, scaled = self._read_header(os.pread(handle, HEADER_BYTES, 0))
            # Private: a write to a row does not reach the file.
            held = mmap.mmap(handle, 0, access=mmap.ACCESS_COPY)
        finally:
            os.close(handle)
        size = int(self._metadata["size"])
        parts = {}
        for name, (shape, start, _) in _layout(rows, size, scaled).items():
            place = HEADER_BYTES + start
            array = np.frombuffer(held, _TYPES[name][1], math.prod(shape), place)
            parts[name] = torch.from_numpy(array).view(shape)
        # The padding of rows is looked at when they are read.
        self._features = BitFeatures._trusted(parts["words"], size, parts.get("scale"))

    def __reduce__(self) -> Any:
        return FeatureFile, (self.path,)

    @property
    def shape(self) -> torch.Size:
        """``(N, size)``."""
        return self._features.shape

    def rows(self, index: Any = None) -> BitFeatures:
        """Rows as features; a slice, an integer or None is a view of the file."""
        if os.stat(self.path).st_size < self._bytes:
            raise FileError(f"{self.path}: was cut short while it was in use")
        found = self._features[slice(None) if index is None else index]
        try:
            found.validate()
        except ValueError as error:
            raise FileError(f"{self.path}: {error}") from None
        return found

    def check_graph(self, edge_index: Tensor | tuple[Tensor, Tensor]) -> None:
        """Require the graph that the features were written for."""
        held = self._metadata["graph"]
        if held and held != _graph_digest(edge_index):
            raise FileError(f"{self.path}: holds the features of another graph")

    def verify(self) -> None:
        """Read everything and compare with the checksum."""
        digest = hashlib.sha256()
        with open(self.path, "rb") as file:
            file.seek(HEADER_BYTES)
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
        if digest.hexdigest() != self._metadata["sha256"]:
            raise FileError(f"{self.path}: is damaged, its checksum is another one")

    def _read_header(self, data: bytes) -> tuple[dict[str, str], int, bool]:
        """Metadata, number of rows, and whether there is a scale."""
        length = _LENGTH.unpack_from(data)[0] if len(data) >= _LENGTH.size else 0
        if length != HEADER_BYTES - _LENGTH.size or len(data) != HEADER_BYTES:
            raise FileError(f"{self.path}: is not a file of packed features")
        header = parse_json(data[_LENGTH.size :], self.path)
        try:
            metadata = header["__metadata__"]
            kind, size = (metadata["format"], metadata["version"]), int(metadata["size"])
            rows, scaled = header["words"]["shape"][0], "scale" in header
            known = type(rows) is int and rows >= 0 and size >= 0 and kind == (FORMAT, VERSION)
            valid = known and data == _header(rows, size, scaled, metadata)
        except (KeyError, TypeError, ValueError, IndexError):
            valid = False
        if not valid:
            raise FileError(f"{self.path}: is not a file of packed features, version {VERSION}")
        expected = HEADER_BYTES + max(end for _, _, end in _layout(rows, size, scaled).values())
        if self._bytes != expected:
            raise FileError(f"{self.path}: has {self._bytes} bytes, {expected} were written")
        return metadata, rows, scaled


def _graph_digest(edge_index: Tensor | tuple[Tensor, Tensor]) -> str:
    """SHA-256 of an edge index ``[2, E]`` or a pair of its rows, as int64 in its order."""
    digest = hashlib.sha256()
    for row in (edge_index[0], edge_index[1]):
        for part in row.split(CHUNK_BYTES):
            digest.update(part.detach().cpu().to(torch.int64).numpy().tobytes())
    return digest.hexdigest()


def _packed(place: int, block: Any) -> BitTensor:
    if isinstance(block, BitTensor):
        return block
    if not (isinstance(block, Tensor) and block.is_floating_point()):
        raise TypeError(
            f"write_features: blocks must be BitTensors or floats, got {name_type(block)} in "
            f"block {place}"
        )
    return BitTensor.from_float(block)


def _kind(kind: tuple[int, bool]) -> str:
    return f"{kind[0]} features {'with' if kind[1] else 'without'} scale"


def _bytes(tensor: Tensor, name: str) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().astype(_TYPES[name][1], copy=False).tobytes()


def _layout(rows: int, size: int, is_scaled: bool) -> dict[str, tuple[tuple[int, ...], int, int]]:
    """Shape, first byte and end of each tensor behind the header."""
    shapes: dict[str, tuple[int, ...]] = {"words": (rows, words_for(size))}
    if is_scaled:
        shapes["scale"] = (rows,)
    found, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + math.prod(shape) * _TYPES[name][1].itemsize
        found[name] = shape, start, end
    return found


def _header(rows: int, size: int, is_scaled: bool, metadata: dict[str, str]) -> bytes:
    """Length and JSON of safetensors, padded with blanks."""
    entries: dict[str, Any] = {"__metadata__": metadata}
    for name, (shape, *offsets) in _layout(rows, size, is_scaled).items():
        kind = _TYPES[name][0]
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": offsets}
    length = HEADER_BYTES - _LENGTH.size
    return _LENGTH.pack(length) + json.dumps(entries).encode().ljust(length)
