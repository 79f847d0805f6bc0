"""Packed features in a safetensors file: written in a stream, mapped into memory, read by rows."""

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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type
from bitgnn._files import FileError, atomic_file
from bitgnn._plain import parse_json
from bitgnn.bits import BitFeatures, BitTensor
from bitgnn.bits.tensor import words_for

FORMAT = "bitgnn.features"
VERSION = "1"
HEADER_BYTES = 1024
"""Length of the header with the number in front of it; it is written last, in its place."""
CHUNK_BYTES = 1 << 24
_LENGTH = struct.Struct("<Q")
_TYPES = {"words": ("I32", np.dtype("<i4")), "scale": ("F32", np.dtype("<f4"))}


def write_features(
    path: str | os.PathLike[str], blocks: Iterable[Any], edge_index: Tensor | None = None
) -> None:
    """Write packed features block by block; memory holds one block at a time.

    The file is one of safetensors with ``words`` int32 ``[N, ceil(size / 32)]``, ``scale``
    float32 ``[N]`` where the blocks have one, and the number of features, a SHA-256 of both
    tensors and the digest of the graph as metadata. It appears whole or not at all.

    Args:
        path: the file; its folder exists.
        blocks: ``BitTensor`` ``[n, size]``, or floats ``[n, size]`` that are made one, in the order
            of the nodes; all with a scale, or none.
        edge_index: ``[2, E]``, the graph that the features belong to; None for any graph.

    Raises:
        TypeError: a block is of another kind.
        ValueError: there is no block, or sizes or scales differ.
        OSError: the file cannot be written.
    """
    target = Path(path)
    first, rows, digest = None, 0, hashlib.sha256()
    with (
        atomic_file(target) as file,
        tempfile.TemporaryFile(dir=target.parent) as scales,
    ):
        file.write(bytes(HEADER_BYTES))
        for place, block in enumerate(blocks):
            bits = _packed(place, block)
            first = _kind(bits) if first is None else first
            _check_kind(place, _kind(bits), first)
            words = _bytes(bits.words, "words")
            file.write(words)
            digest.update(words)
            if bits.scale is not None:
                scales.write(_bytes(bits.scale, "scale"))
            rows += len(bits)
        check_value(
            first is not None, lambda: "write_features: blocks must hold at least one block"
        )
        assert first is not None
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
            "graph": "" if edge_index is None else graph_digest(edge_index),
        }
        file.seek(0)
        file.write(_header(rows, *first, metadata))


def graph_digest(edge_index: Tensor | tuple[Tensor, Tensor]) -> str:
    """SHA-256 of an edge index ``[2, E]`` or a pair of its rows, as int64 in its order."""
    digest = hashlib.sha256()
    for row in (edge_index[0], edge_index[1]):
        for part in row.split(CHUNK_BYTES):
            digest.update(part.detach().cpu().to(torch.int64).numpy().tobytes())
    return digest.hexdigest()


class FeatureFile:
    """Packed features of a file, mapped into memory: what is read of them is what is loaded.

    Args:
        path: what :func:`write_features` wrote.

    Raises:
        FileError: it is cut short, altered or another kind of file.
        OSError: it cannot be read.
    """

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
        shapes = _shapes(rows, size, scaled)
        parts, start = {}, HEADER_BYTES
        for name, shape in shapes.items():
            array = np.frombuffer(held, _TYPES[name][1], math.prod(shape), start)
            parts[name] = torch.from_numpy(array).view(shape)
            start += array.nbytes
        # The padding of rows is looked at when they are read.
        self._features = BitFeatures._trusted(parts["words"], size, parts.get("scale"))

    def __reduce__(self) -> Any:
        return FeatureFile, (self.path,)

    @property
    def shape(self) -> torch.Size:
        """``(N, size)``."""
        return self._features.shape

    def rows(self, index: Any = None) -> BitFeatures:
        """Rows as features; a slice, an integer or None is a view of the file.

        Args:
            index: as of :class:`~bitgnn.BitTensor`; None for all.

        Raises:
            FileError: the file was cut since it was opened, or padding bits are set.
            TypeError: ``index`` is of another kind.
            IndexError: a row does not exist.
        """
        if os.stat(self.path).st_size < self._bytes:
            raise FileError(f"{self.path}: was cut short while it was in use")
        found = self._features[slice(None) if index is None else index]
        try:
            found.validate()
        except ValueError as error:
            raise FileError(f"{self.path}: {error}") from None
        return found

    def check_graph(self, edge_index: Tensor | tuple[Tensor, Tensor]) -> None:
        """Require the graph that the features were written for.

        Raises:
            FileError: it is another one.
        """
        held = self._metadata["graph"]
        if held and held != graph_digest(edge_index):
            raise FileError(f"{self.path}: holds the features of another graph")

    def verify(self) -> None:
        """Read everything and compare with the checksum.

        Raises:
            FileError: they differ.
        """
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
        expected = HEADER_BYTES + sum(
            math.prod(shape) * _TYPES[name][1].itemsize
            for name, shape in _shapes(rows, size, scaled).items()
        )
        if self._bytes != expected:
            raise FileError(f"{self.path}: has {self._bytes} bytes, {expected} were written")
        return metadata, rows, scaled


def _packed(place: int, block: Any) -> BitTensor:
    if isinstance(block, BitTensor):
        return block
    check_type(
        isinstance(block, Tensor) and block.is_floating_point(),
        lambda: (
            f"write_features: blocks must be BitTensors or floats, got {name_type(block)} in "
            f"block {place}"
        ),
    )
    return BitTensor.from_float(block)


def _kind(bits: BitTensor) -> tuple[int, bool]:
    """Number of features, and whether there is a scale."""
    return int(bits.size), bits.scale is not None


def _check_kind(place: int, found: tuple[int, bool], first: tuple[int, bool]) -> None:
    def text(kind: tuple[int, bool]) -> str:
        return f"{kind[0]} features {'with' if kind[1] else 'without'} scale"

    check_value(
        found == first,
        lambda: (
            f"write_features: blocks must have {text(first)} like the first, got {text(found)} in "
            f"block {place}"
        ),
    )


def _bytes(tensor: Tensor, name: str) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().astype(_TYPES[name][1], copy=False).tobytes()


def _shapes(rows: int, size: int, is_scaled: bool) -> dict[str, tuple[int, ...]]:
    words = {"words": (rows, words_for(size))}
    return {**words, "scale": (rows,)} if is_scaled else {**words}


def _header(rows: int, size: int, is_scaled: bool, metadata: dict[str, str]) -> bytes:
    """Length and JSON of safetensors, padded with blanks."""
    entries: dict[str, Any] = {"__metadata__": metadata}
    start = 0
    for name, shape in _shapes(rows, size, is_scaled).items():
        end = start + math.prod(shape) * _TYPES[name][1].itemsize
        entries[name] = {
            "dtype": _TYPES[name][0],
            "shape": list(shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(entries).encode()
    length = HEADER_BYTES - _LENGTH.size
    return _LENGTH.pack(length) + text.ljust(length)
