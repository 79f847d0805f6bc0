"""Files of packed features: safetensors written in a stream, checked and mapped when read."""

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
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn._files import FileError, atomic_file
from bitgnn._plain import parse_json
from bitgnn.bits import BitFeatures, BitTensor, Int8Features, Int8Tensor
from bitgnn.bits.int8 import bytes_for, check_scales, fingerprint_of, shown
from bitgnn.bits.tensor import words_for

FORMAT = "bitgnn.features"
VERSION = "1"
HEADER_BYTES = 1024
"""Length of the header including its length field; the header is written last, in place."""
CHUNK_BYTES = 1 << 24
_LENGTH = struct.Struct("<Q")
_INT8, _INT32, _FLOAT32 = ("I8", np.dtype("i1")), ("I32", np.dtype("<i4")), ("F32", np.dtype("<f4"))


class _Kind(NamedTuple):
    """Kind of the rows of a file."""

    size: int
    is_scaled: bool
    """True if bits have a scale of each row."""
    fingerprint: str
    """That of the scales of 8-bit rows, 16 digits; empty for bits."""

    def __str__(self) -> str:
        if self.fingerprint:
            return f"{self.size} features of 8 bits packed by scales {self.fingerprint}"
        return f"{self.size} features {'with' if self.is_scaled else 'without'} scale"

    def layout(self, rows: int) -> dict[str, tuple[tuple[str, Any], tuple[int, ...], int, int]]:
        """Type, shape, first byte and end of each tensor after the header."""
        parts: list[tuple[str, tuple[str, Any], tuple[int, ...]]]
        if self.fingerprint:
            scale = (_FLOAT32, (self.size,))
            parts = [("codes", _INT8, (rows, bytes_for(self.size)))]
            parts += [("centre", *scale), ("step", *scale)]
        else:
            parts = [("words", _INT32, (rows, words_for(self.size)))]
            parts += [("scale", _FLOAT32, (rows,))] * self.is_scaled
        found, end = {}, 0
        for name, kind, shape in parts:
            start, end = end, end + math.prod(shape) * kind[1].itemsize
            found[name] = kind, shape, start, end
        return found

    def header(self, rows: int, metadata: dict[str, str]) -> bytes:
        """Length and JSON of safetensors, padded with blanks."""
        entries: dict[str, Any] = {"__metadata__": metadata}
        for name, (kind, shape, *offsets) in self.layout(rows).items():
            entries[name] = {"dtype": kind[0], "shape": list(shape), "data_offsets": offsets}
        length = HEADER_BYTES - _LENGTH.size
        return _LENGTH.pack(length) + json.dumps(entries).encode().ljust(length)


def write_features(
    path: str | os.PathLike[str], blocks: Iterable[Any], edge_index: Tensor | None = None
) -> None:
    """Implement :meth:`PackedFeatureStore.write`."""
    target = Path(path)
    first, rows, digest = None, 0, hashlib.sha256()
    with atomic_file(target) as file, tempfile.TemporaryFile(dir=target.parent) as scales:
        file.write(bytes(HEADER_BYTES))
        for place, block in enumerate(blocks):
            packed = _packed(place, block)
            kind = _kind_of(packed)
            if first is None:
                first = kind
                if isinstance(packed, Int8Tensor):
                    scales.write(_bytes(packed.centre) + _bytes(packed.step))
            if kind != first:
                raise ValueError(
                    f"write_features: blocks must have {first} like the first, got {kind} in "
                    f"block {place}"
                )
            values = _bytes(packed.codes if isinstance(packed, Int8Tensor) else packed.words)
            file.write(values)
            digest.update(values)
            if isinstance(packed, BitTensor) and packed.scale is not None:
                scales.write(_bytes(packed.scale))
            rows += len(packed)
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
            "size": str(first.size),
            "sha256": digest.hexdigest(),
            "graph": "" if edge_index is None else _graph_digest(edge_index),
        }
        if first.fingerprint:
            metadata["fingerprint"] = first.fingerprint
        file.seek(0)
        file.write(first.header(rows, metadata))


class FeatureFile:
    """Packed features of a file, mapped into memory and loaded when they are read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # A pipe without a writer would be waited for.
        handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise FileError(f"{self.path}: must be a regular file")
            self._bytes = status.st_size
            self._metadata, rows, self._kind = self._read_header(os.pread(handle, HEADER_BYTES, 0))
            # Private: a write to a row does not reach the file.
            held = mmap.mmap(handle, 0, access=mmap.ACCESS_COPY)
        finally:
            os.close(handle)
        parts = {}
        for name, ((_, dtype), shape, start, _) in self._kind.layout(rows).items():
            array = np.frombuffer(held, dtype, math.prod(shape), HEADER_BYTES + start)
            parts[name] = torch.from_numpy(array).view(shape)
        # The padding of rows is looked at when they are read.
        self._features: BitFeatures | Int8Features
        if self._kind.fingerprint:
            self._features = self._int8_features(**parts)
        else:
            size = self._kind.size
            self._features = BitFeatures._trusted(parts["words"], size, parts.get("scale"))

    def __reduce__(self) -> Any:
        return FeatureFile, (self.path,)

    def _int8_features(self, codes: Tensor, centre: Tensor, step: Tensor) -> Int8Features:
        """8-bit rows with scales in memory, which must have the file's fingerprint."""
        try:
            check_scales(str(self.path), centre, step)
        except ValueError as error:
            raise FileError(str(error)) from None
        fingerprint = fingerprint_of(centre, step)
        if shown(fingerprint) != self._kind.fingerprint:
            raise FileError(
                f"{self.path}: is damaged, its scales are {shown(fingerprint)} and not "
                f"{self._kind.fingerprint}"
            )
        scales = centre.clone(), step.clone()
        return Int8Features._trusted(codes, self._kind.size, *scales, fingerprint)

    @property
    def shape(self) -> torch.Size:
        """``(N, size)``."""
        return self._features.shape

    def rows(self, index: Any = None) -> BitFeatures | Int8Features:
        """Rows as features, copied; None, all of them, is a view of the file."""
        if os.stat(self.path).st_size < self._bytes:
            raise FileError(f"{self.path}: was cut short while it was in use")
        found = self._features[slice(None) if index is None else index]
        try:
            found.validate()
        except ValueError as error:
            raise FileError(f"{self.path}: {error}") from None
        # Views would end the process where the file is cut short in its place.
        return found.clone() if isinstance(index, slice | int) else found

    def check_graph(self, edge_index: Tensor | tuple[Tensor, Tensor]) -> None:
        """Require the graph that the features were written for."""
        held = self._metadata["graph"]
        if held and held != _graph_digest(edge_index):
            raise FileError(f"{self.path}: holds the features of another graph")

    def check_fingerprint(self, expected: int) -> None:
        """Require 8-bit rows that were packed with the scales of a fingerprint."""
        if self._kind.fingerprint != shown(expected):
            raise FileError(
                f"{self.path}: must hold features of 8 bits packed by scales {shown(expected)}, "
                f"holds {self._kind}"
            )

    def verify(self) -> None:
        """Read everything and compare with the checksum."""
        digest = hashlib.sha256()
        with open(self.path, "rb") as file:
            file.seek(HEADER_BYTES)
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
        if digest.hexdigest() != self._metadata["sha256"]:
            raise FileError(f"{self.path}: is damaged, its checksum is another one")

    def _read_header(self, data: bytes) -> tuple[dict[str, str], int, _Kind]:
        """Metadata, number of rows and their kind."""
        length = _LENGTH.unpack_from(data)[0] if len(data) >= _LENGTH.size else 0
        if length != HEADER_BYTES - _LENGTH.size or len(data) != HEADER_BYTES:
            raise FileError(f"{self.path}: is not a file of packed features")
        header = parse_json(data[_LENGTH.size :], self.path)
        try:
            metadata = header["__metadata__"]
            kind = _Kind(int(metadata["size"]), "scale" in header, metadata.get("fingerprint", ""))
            rows = header["codes" if kind.fingerprint else "words"]["shape"][0]
            known = (metadata["format"], metadata["version"]) == (FORMAT, VERSION)
            known = known and type(rows) is int and rows >= 0 and kind.size >= 0
            valid = known and data == kind.header(rows, metadata)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError):
            valid = False
        if not valid:
            raise FileError(f"{self.path}: is not a file of packed features, version {VERSION}")
        expected = HEADER_BYTES + max(end for *_, end in kind.layout(rows).values())
        if self._bytes != expected:
            raise FileError(f"{self.path}: has {self._bytes} bytes, {expected} were written")
        return metadata, rows, kind


def _graph_digest(edge_index: Tensor | tuple[Tensor, Tensor]) -> str:
    """SHA-256 of an edge index ``[2, E]`` or a pair of its rows, as int64 in its order."""
    digest = hashlib.sha256()
    for row in (edge_index[0], edge_index[1]):
        for part in row.split(CHUNK_BYTES):
            digest.update(part.detach().cpu().to(torch.int64).numpy().tobytes())
    return digest.hexdigest()


def _packed(place: int, block: Any) -> BitTensor | Int8Tensor:
    if isinstance(block, BitTensor | Int8Tensor):
        return block
    if not (isinstance(block, Tensor) and block.is_floating_point()):
        raise TypeError(
            f"write_features: blocks must be BitTensors, Int8Tensors or floats, got "
            f"{name_type(block)} in block {place}"
        )
    return BitTensor.from_float(block)


def _kind_of(packed: BitTensor | Int8Tensor) -> _Kind:
    if isinstance(packed, Int8Tensor):
        return _Kind(int(packed.size), False, shown(packed.fingerprint))
    return _Kind(int(packed.size), packed.scale is not None, "")


def _bytes(tensor: Tensor) -> bytes:
    array = tensor.detach().cpu().contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
