"""Sorts the edges of a graph into files of its rows: a counting sort in two passes."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from bitgnn._checksummed import map_sealed, seal_of, sealed_tensors
from bitgnn._files import FileError, OutputError, write_atomically
from bitgnn.bits.edges import Edges
from bitgnn.bits.factors import factors_of
from bitgnn.distributed.manifest import (
    FORMAT,
    MAX_NODES,
    META,
    VERSION,
    Manifest,
    PartEntry,
    part_name,
    read_manifest,
    write_manifest,
)
from bitgnn.distributed.packed_rows import PackedRowsFile, bytes_of
from bitgnn.distributed.row_order import Order, RowOrder
from bitgnn.distributed.sources import Blocks, Source

KEY_BYTES = 8
COLUMN_BITS = 32
"""An edge is the key ``row of the part << 32 | column``, whose order is that of CSR."""
FACTORS: tuple[Literal["row_scale"], Literal["col_scale"]] = ("row_scale", "col_scale")
Normalize = Literal["sym", "mean"]


@dataclass(frozen=True)
class Options:
    """Options of a partition; see :class:`bitgnn.distributed.Partitioner`."""

    num_parts: int
    order: Order
    undirected: bool
    add_self_loops: bool
    normalize: Normalize | None


class Job:
    """Work of a partitioner in a folder that is its own."""

    def __init__(self, source: Source, options: Options, root: Path) -> None:
        self.source, self.options, self.root = source, options, root
        self.features: PackedRowsFile | None = None
        if self.source.features is not None:
            self.features = PackedRowsFile(self.source.features(), self.root)
        self.num_nodes = self._num_nodes()

    def run(self) -> None:
        """Write the parts that are not there yet, and META.json."""
        degree, digest = self._count()
        self.rows = RowOrder.of(degree, self.options.num_parts, self.options.order)
        parts = range(self.options.num_parts)
        counts = [int(degree[self.rows.nodes(part)].sum()) for part in parts]
        del degree
        self.job = self._digest(digest)
        self._refuse_other_jobs()
        entries = {part: entry for part in parts if (entry := self._finished(part)) is not None}
        wanted = np.array([part not in entries for part in parts])
        begins = np.concatenate([[0], np.cumsum(np.where(wanted, counts, 0))])
        try:
            with tempfile.TemporaryFile(dir=self.root) as file:
                if wanted.any():
                    self._scatter(file, wanted, begins)
                for part in self._bar(np.flatnonzero(wanted), "writing", "part"):
                    entries[int(part)] = self._write_part(file, int(part), begins)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"{self.root}: {len(entries)} of {len(parts)} parts are finished and kept; the "
                "same command goes on"
            ) from None
        self._write_manifest([entries[part] for part in parts])

    def _num_nodes(self) -> int:
        found = self.source.num_nodes
        if found is None and self.features is not None:
            found = self.features.rows
        if found is None:
            ends = (int(end.max()) for pair in self._edges("reading") for end in pair if end.size)
            found = max(ends, default=-1) + 1
        if found > MAX_NODES:
            raise ValueError(f"Partitioner: nodes must be {MAX_NODES} at most, got {found}")
        if self.features is not None and self.features.rows != found:
            raise ValueError(
                f"Partitioner: x must have a row for each of {found} nodes, has "
                f"{self.features.rows}"
            )
        return found

    def _edges(self, title: str) -> Blocks:
        """Edges as the source has them, with a bar of progress."""
        with tqdm(
            total=self.source.num_edges, desc=title, unit="edge", unit_scale=True, disable=None,
            leave=False,
        ) as bar:  # fmt: skip
            for pair in self.source.edges():
                yield pair
                bar.update(len(pair[0]))

    def _bar(self, values: Any, title: str, unit: str) -> Any:
        return tqdm(values, desc=title, unit=unit, disable=None, leave=False)

    def _both_ways(self, pair: tuple[Any, Any]) -> Iterator[tuple[Any, Any]]:
        yield pair
        if self.options.undirected:
            yield pair[1], pair[0]

    def _count(self) -> tuple[Tensor, str]:
        """Number of entries of each row, duplicates counted, and a digest of the edges."""
        degree = torch.zeros(self.num_nodes, dtype=torch.int64)
        digests = hashlib.sha256(), hashlib.sha256()
        for pair in self._edges("counting"):
            for name, digest, ends in zip(("sources", "destinations"), digests, pair, strict=True):
                if ends.size and not 0 <= ends.min() <= ends.max() < self.num_nodes:
                    raise ValueError(
                        f"{self.source.title}: {name} must lie in [0, {self.num_nodes}) with "
                        f"{self.num_nodes} nodes, got {ends.min()} to {ends.max()}"
                    )
                digest.update(bytes_of(ends.astype("<u4")))
            for _, rows in self._both_ways(pair):
                index = torch.from_numpy(rows.astype(np.int64))
                degree.index_add_(0, index, torch.ones(1, dtype=torch.int64).expand(len(index)))
        return degree, digests[0].hexdigest() + digests[1].hexdigest()

    def _digest(self, edges: str) -> str:
        """Digest of everything that the parts are made of."""
        digest = hashlib.sha256()
        scales = (self.source.row_scale, self.source.col_scale)
        for scale in scales:
            digest.update(b"" if scale is None else bytes_of(scale.cpu().numpy()))
        values = [
            VERSION, edges, self.features and self.features.sha256, self.num_nodes,
            asdict(self.options), [scale is None for scale in scales],
        ]  # fmt: skip
        digest.update(json.dumps(values).encode())
        return digest.hexdigest()

    def _refuse_other_jobs(self) -> None:
        if (self.root / META).exists() and read_manifest(self.root).job != self.job:
            raise OutputError(
                f"{self.root}: holds a partition of another graph or with other options; choose "
                "another folder or delete it"
            )

    def _finished(self, part: int) -> PartEntry | None:
        """The entry of a part that an earlier run has written."""
        file = self.root / part_name(part)
        if not file.exists():
            return None
        tensors, values, sha256 = map_sealed(file)
        if values != self._values(part):
            raise OutputError(
                f"{file}: belongs to a partition of another graph or with other options; choose "
                "another folder or delete the file"
            )
        bytes_ = file.stat().st_size
        return PartEntry(bytes=bytes_, edges=len(tensors["indices"]), sha256=sha256)

    def _values(self, part: int) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, "job": self.job, "part": part}

    def _scatter(self, file: BinaryIO, wanted: NDArray[Any], begins: NDArray[Any]) -> None:
        """Write the key of each edge to the range of the file that belongs to its part."""
        starts, places = self.rows.starts.numpy(), begins[:-1].copy()
        position = None if self.rows.position is None else self.rows.position.numpy()
        for pair in self._edges("sorting"):
            for columns, rows in self._both_ways(pair):
                if position is not None:
                    columns, rows = position[columns], position[rows]
                part = np.searchsorted(starts, rows, side="right") - 1
                key = (rows.astype(np.int64) - starts[part]) << COLUMN_BITS
                key |= columns.astype(np.int64)
                if not wanted.all():
                    key, part = key[wanted[part]], part[wanted[part]]
                # A stable sort of 16 bits is a counting sort.
                key = key[np.argsort(part.astype(np.uint16), kind="stable")]
                counts = np.bincount(part, minlength=len(wanted))
                if (places + counts > begins[1:]).any():
                    raise FileError(f"{self.source.title}: changed while it was read")
                first = 0
                for number in np.flatnonzero(counts):
                    end = first + int(counts[number])
                    place = int(places[number]) * KEY_BYTES
                    _write_at(file, key[first:end], place)
                    first = end
                places += counts
        if (places != begins[1:]).any():
            raise FileError(f"{self.source.title}: changed while it was read")

    def _write_part(self, file: BinaryIO, part: int, begins: NDArray[Any]) -> PartEntry:
        count = int(begins[part + 1] - begins[part])
        file.seek(int(begins[part]) * KEY_BYTES)
        keys = np.fromfile(file, "<i8", count)
        first, end = (int(row) for row in self.rows.starts[part : part + 2])
        tensors = self._csr(keys, first, end - first)
        nodes = self.rows.nodes(part)
        tensors |= self._factors(tensors["rowptr"].diff(), nodes)
        if self.features is not None:
            tensors |= self.features.take(nodes)
        if self.rows.ranked is not None:
            tensors["nodes"] = nodes.to(torch.int32)
        data = sealed_tensors(tensors, self._values(part))
        write_atomically(self.root / part_name(part), data, durable=True)
        edges = len(tensors["indices"])
        return PartEntry(bytes=len(data), edges=edges, sha256=seal_of(data))

    def _csr(self, keys: NDArray[Any], first: int, num_rows: int) -> dict[str, Tensor]:
        """Row pointer and ascending columns of keys, which are sorted in place."""
        if self.options.add_self_loops:
            rows = np.arange(num_rows, dtype=np.int64)
            is_loop = (keys >> COLUMN_BITS) + first == keys & (MAX_NODES - 1)
            keys = np.concatenate([keys[~is_loop], rows << COLUMN_BITS | rows + first])
        keys.sort()
        if self.options.undirected and len(keys):
            keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
        bounds = np.arange(num_rows + 1, dtype=np.int64) << COLUMN_BITS
        rowptr = torch.from_numpy(np.searchsorted(keys, bounds).astype(np.int64))
        columns = torch.from_numpy((keys & (MAX_NODES - 1)).astype(np.int32))
        return {"rowptr": rowptr, "indices": columns}

    def _factors(self, count: Tensor, nodes: Tensor) -> dict[str, Tensor]:
        """Factors of a part's nodes, as destinations and as sources."""
        if self.options.normalize is None:
            given = ((name, getattr(self.source, name)) for name in FACTORS)
            return {name: scale.cpu()[nodes] for name, scale in given if scale is not None}
        square = Edges(nodes, nodes, None, len(nodes), len(nodes))
        normalize = self.options.normalize
        found = factors_of(square, count, normalize == "sym", normalize == "mean")
        named = ((name, getattr(found, name)) for name in FACTORS)
        # Both may be one tensor, which safetensors refuses.
        return {name: scale.clone() for name, scale in named if scale is not None}

    def _write_manifest(self, entries: list[PartEntry]) -> None:
        features = self.features
        held = self._factors(torch.zeros(0), torch.zeros(0, dtype=torch.int64))
        write_manifest(
            self.root,
            Manifest(
                format=FORMAT, version=VERSION, source=self.source.title,
                is_synthetic=self.source.is_synthetic, num_nodes=self.num_nodes,
                num_edges=sum(entry.edges for entry in entries), **asdict(self.options),
                num_features=None if features is None else features.size,
                is_scaled=features is not None and features.scale is not None,
                factors=[name for name in FACTORS if name in held], job=self.job,
                starts=self.rows.starts.tolist(), parts=entries,
            ),
        )  # fmt: skip


def _write_at(file: BinaryIO, values: NDArray[Any], place: int) -> None:
    data = bytes_of(values)
    while len(data):
        written = os.pwrite(file.fileno(), data, place)
        data, place = data[written:], place + written
