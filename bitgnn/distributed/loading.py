"""load_partition: the rows of one rank, mapped from the files of its parts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bitgnn._checksummed import map_sealed
from bitgnn._files import FileError
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.bits.tensor import words_for
from bitgnn.distributed.manifest import META, Manifest, part_name, read_manifest


@dataclass(frozen=True)
class Partition:
    """Rows ``[start, end)`` of a graph, which belong to one rank.

    Attributes:
        adjacency: the rows as ``[end - start, N]``, with their row factors if there are any.
            Columns are rows of the whole graph in the order of the partition.
        x: bits of the rows' nodes, None without features.
        col_scale: float32 ``[end - start]``, factors of the rows' nodes as sources, or None.
        nodes: int64 ``[end - start]``, the user's number of each row's node:
            ``result[partition.nodes] = mine`` brings results back into the user's order.
        starts: first row of each rank, and the number of all rows at the end.
        rank: the rank.
    """

    adjacency: BitAdjacency
    x: BitTensor | None
    col_scale: Tensor | None
    nodes: Tensor
    starts: tuple[int, ...]
    rank: int

    @property
    def start(self) -> int:
        """First row."""
        return self.starts[self.rank]

    @property
    def end(self) -> int:
        """End of the rows."""
        return self.starts[self.rank + 1]


def load_partition(root: str | os.PathLike[str], rank: int, world_size: int) -> Partition:
    """Load the rows of one of ``world_size`` ranks.

    A rank has the whole parts from ``rank * P // world_size`` on; with fewer parts than ranks, some
    have no rows. One part is mapped and read when it is used, several are joined in memory. The
    checksum of each file is compared, which reads it once. Nobody may write to a file in use.

    A part's file holds ``rowptr`` int64 ``[rows + 1]``, ``indices`` int32 ``[edges]``, and where
    the partition has them ``words`` int32 ``[rows, ceil(F / 32)]``, ``scale``, ``row_scale`` and
    ``col_scale`` float32 ``[rows]`` and ``nodes`` int32 ``[rows]``.

    Raises:
        FileError: META.json or a part is missing, cut short, altered, of another version or of
            another partition; the message names the file.
        ValueError: the rank lies outside of ``[0, world_size)``.
    """
    if not 0 <= rank < world_size:
        raise ValueError(
            f"load_partition: rank must lie in [0, world_size {world_size}), got {rank}"
        )
    folder = Path(root)
    manifest = read_manifest(folder)
    bounds = [number * manifest.num_parts // world_size for number in range(world_size + 1)]
    starts = tuple(manifest.starts[part] for part in bounds)
    parts = range(bounds[rank], bounds[rank + 1])
    return _joined([_part(folder, manifest, part) for part in parts], manifest, starts, rank)


def _part(folder: Path, manifest: Manifest, part: int) -> dict[str, Tensor]:
    """Tensors of a part, views of its file."""
    file, entry = folder / part_name(part), manifest.parts[part]
    try:
        held = file.stat().st_size
        if held != entry.bytes:
            raise FileError(f"{file}: has {held} bytes, {entry.bytes} were written")
        tensors, values, sha256 = map_sealed(file)
    except FileNotFoundError:
        raise FileError(f"{file}: is missing, {META} tells of {manifest.num_parts} parts") from None
    for name, found, wanted in (
        ("partition", values.get("job"), manifest.job),
        ("part", values.get("part"), part),
        ("checksum", sha256, entry.sha256),
    ):
        if found != wanted:
            raise FileError(f"{file}: has {name} {found}, must have {wanted} by {META}")
    rows = manifest.starts[part + 1] - manifest.starts[part]
    expected = _expected(manifest, rows, entry.edges)
    shapes = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    if shapes != expected:
        raise FileError(f"{file}: must hold {expected} by {META}, holds {shapes}")
    return tensors


def _expected(
    manifest: Manifest, rows: int, edges: int
) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Types and shapes of a part's tensors."""
    found: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        "rowptr": (torch.int64, (rows + 1,)),
        "indices": (torch.int32, (edges,)),
    }
    names = [*manifest.factors, *["scale"] * manifest.is_scaled]
    found |= dict.fromkeys(names, (torch.float32, (rows,)))
    if manifest.num_features is not None:
        found["words"] = torch.int32, (rows, words_for(manifest.num_features))
    if manifest.order == "dealt":
        found["nodes"] = torch.int32, (rows,)
    return found


def _joined(
    parts: Sequence[dict[str, Tensor]], manifest: Manifest, starts: tuple[int, ...], rank: int
) -> Partition:
    if not parts:
        empty = _expected(manifest, 0, 0).items()
        parts = [{name: torch.zeros(shape, dtype=dtype) for name, (dtype, shape) in empty}]
    tensors = parts[0]
    if len(parts) > 1:
        pointers, edges = [parts[0]["rowptr"][:1]], 0
        for part in parts:
            pointers.append(part["rowptr"][1:] + edges)
            edges += len(part["indices"])
        names = [name for name in parts[0] if name != "rowptr"]
        tensors = {name: torch.cat([part[name] for part in parts]) for name in names}
        tensors["rowptr"] = torch.cat(pointers)
    rows = starts[rank + 1] - starts[rank]
    nodes = tensors["nodes"].long() if "nodes" in tensors else torch.arange(rows) + starts[rank]
    try:
        adjacency = BitAdjacency(
            tensors["rowptr"], tensors["indices"], manifest.num_nodes, tensors.get("row_scale")
        )
        x = None
        if manifest.num_features is not None:
            x = BitTensor(tensors["words"], manifest.num_features, tensors.get("scale"))
        if rows and not 0 <= int(nodes.min()) <= int(nodes.max()) < manifest.num_nodes:
            raise ValueError(f"nodes must lie in [0, {manifest.num_nodes})")
    except ValueError as error:
        raise FileError(f"parts of rank {rank} of {len(starts) - 1}: {error}") from None
    return Partition(adjacency, x, tensors.get("col_scale"), nodes, starts, rank)
