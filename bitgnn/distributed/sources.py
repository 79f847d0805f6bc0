"""Sources of partitions: graphs in memory, .npy files, OGB's raw folders, made-up graphs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from bitgnn._checks import name_type
from bitgnn._files import FileError
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.bits.edges import read_edges
from bitgnn.bits.rows import PackedRows
from bitgnn.data.feature_file import FeatureFile
from bitgnn.distributed.power_law import PowerLawGraph
from bitgnn.distributed.streams import ArrayStream, table_blocks

EDGES_AT_ONCE = 1 << 20
FEATURES_AT_ONCE = 1 << 22
"""Values of features that are packed at once."""
OWNER = "Partitioner"

Blocks = Iterator[tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True)
class Source:
    """Edges and features of a graph in pieces, which can be gone through again.

    ``edges()`` gives sources and destinations, of any integer type and not checked yet;
    ``features()`` gives rows from the first node on. ``num_nodes`` and ``num_edges`` are None where
    only reading tells.
    """

    title: str
    edges: Callable[[], Blocks]
    num_nodes: int | None
    num_edges: int | None
    features: Callable[[], Iterator[BitTensor]] | None = None
    row_scale: Tensor | None = None
    col_scale: Tensor | None = None
    is_synthetic: bool = False


def read_source(data: Any, num_nodes: int | None, x: Any) -> Source:
    """The source of what a user hands over; ``num_nodes`` and ``x``, if given, take precedence."""
    if isinstance(data, PowerLawGraph):
        bits = data.features if data.num_features else None
        found = Source(
            repr(data), data.blocks, data.num_nodes, data.num_edges, bits, is_synthetic=True
        )
    elif isinstance(data, str | os.PathLike):
        path = Path(data)
        found = _read_ogb(path) if path.is_dir() else _read_npy(ArrayStream.of(path))
    elif isinstance(data, tuple | list) and _are_paths(data):
        if len(data) != 2:
            raise ValueError(f"{OWNER}: files must be one or a pair, got {len(data)}")
        found = _read_pair(*(ArrayStream.of(Path(path)) for path in data))
    else:
        found = _in_memory(data, num_nodes)
        if is_plain(data) and num_nodes is None and x is not None:
            found = replace(found, num_nodes=None)  # rows of x tell it
    if num_nodes is not None:
        found = replace(found, num_nodes=num_nodes)
    return found if x is None else replace(found, features=lambda: _packed_blocks(x))


def require_factors(owner: str, adjacency: BitAdjacency) -> None:
    """Refuse an adjacency whose edges have weights of their own, which parts do not store."""
    if adjacency.values is not None:
        raise ValueError(
            f"{owner}: the adjacency must be a pattern with factors, got values of single edges"
        )


def _are_paths(data: Any) -> bool:
    return all(isinstance(part, str | os.PathLike) for part in data)


def _in_memory(data: Any, num_nodes: int | None) -> Source:
    x = row_scale = col_scale = None
    title = name_type(data)
    if isinstance(data, Data):
        if data.get("edge_weight") is not None:
            raise ValueError(
                f"{OWNER}: edge_weight must be None: partitions hold patterns with factors, which "
                "BitAdjacency.from_edge_index makes of weights that the edges into a node share"
            )
        x, num_nodes = data.get("x"), data.num_nodes if num_nodes is None else num_nodes
        data = data.edge_index if data.get("edge_index") is not None else data.get("adj_t")
    if isinstance(data, BitAdjacency):
        require_factors(OWNER, data)
        row_scale, col_scale = data.row_scale, data.col_scale
        shape = data.shape if num_nodes is None else (num_nodes, num_nodes)
        edges = read_edges(data.to_edge_index(), shape, None, OWNER)
    else:
        edges = read_edges(data, num_nodes, None, OWNER)
    if edges.weight is not None:
        raise ValueError(
            f"{OWNER}: the adjacency must be a pattern of ones, got weights; "
            "BitAdjacency.from_edge_index makes factors of those that the edges into a node share"
        )
    if edges.num_rows != edges.num_cols:
        raise ValueError(
            f"{OWNER}: the graph must have as many sources as destinations, got {edges.num_cols} "
            f"and {edges.num_rows}"
        )

    def blocks() -> Blocks:
        pairs = zip(
            edges.columns.split(EDGES_AT_ONCE), edges.rows.split(EDGES_AT_ONCE), strict=True
        )
        for columns, rows in pairs:
            yield columns.cpu().numpy(), rows.cpu().numpy()

    features = None if x is None else lambda: _packed_blocks(x)
    return Source(title, blocks, edges.num_rows, len(edges.rows), features, row_scale, col_scale)


def _read_npy(array: ArrayStream) -> Source:
    """Edges of an array ``[2, E]``, sources first."""
    if array.dtype.kind not in "iu" or len(array.shape) != 2 or array.shape[0] != 2:
        raise FileError(
            f"{array}: must hold integers [2, E], got {array.dtype} {list(array.shape)}"
        )
    count = array.shape[1]

    def blocks() -> Blocks:
        if array.is_fortran:  # pairs lie side by side
            for piece in array.pieces(0, 2 * count, 2 * EDGES_AT_ONCE):
                pairs = piece.reshape(-1, 2)
                yield pairs[:, 0], pairs[:, 1]
        else:
            first = array.pieces(0, count, EDGES_AT_ONCE)
            yield from zip(first, array.pieces(count, count, EDGES_AT_ONCE), strict=True)

    return Source(str(array), blocks, None, count)


def _read_pair(sources: ArrayStream, destinations: ArrayStream) -> Source:
    """Edges of two arrays ``[E]``."""
    for array in (sources, destinations):
        if array.dtype.kind not in "iu" or array.shape != sources.shape or len(array.shape) != 1:
            wanted = f"[{sources.shape[0]}]" if len(sources.shape) == 1 else "[E]"
            raise FileError(
                f"{array}: must hold integers {wanted}, got {array.dtype} {list(array.shape)}"
            )
    count = sources.shape[0]

    def blocks() -> Blocks:
        pieces = (array.pieces(0, count, EDGES_AT_ONCE) for array in (sources, destinations))
        yield from zip(*pieces, strict=True)

    return Source(f"{sources}, {destinations}", blocks, None, count)


def _read_ogb(folder: Path) -> Source:
    """Raw files of a node-property data set, edges as they are listed there.

    ``raw/data.npz`` of ogbn-papers100M, or the tables ``raw/edge.csv.gz``,
    ``raw/num-node-list.csv.gz`` and, if there, ``raw/node-feat.csv.gz`` of ogbn-arxiv and
    ogbn-products.
    """
    raw = folder / "raw" if (folder / "raw").is_dir() else folder
    archive = raw / "data.npz"
    if archive.is_file():
        found = _read_npy(ArrayStream.of(archive, "edge_index"))
        counts = next(ArrayStream.of(archive, "num_nodes_list").pieces(0, 1, 1))
        x = ArrayStream.of(archive, "node_feat")
        return replace(found, num_nodes=int(counts[0]), features=lambda: _packed_stream(x))
    tables = {name: raw / f"{name}.csv.gz" for name in ("edge", "num-node-list", "node-feat")}
    missing = [path.name for path in tables.values() if not path.is_file()]
    if missing:
        raise FileError(
            f"{raw}: must hold data.npz or the tables {', '.join(p.name for p in tables.values())} "
            f"of OGB, {', '.join(missing)} missing"
        )
    counts = next(table_blocks(tables["num-node-list"], 1, np.int64), np.empty((0, 1), np.int64))
    if len(counts) != 1:
        raise FileError(f"{tables['num-node-list']}: must hold one graph, holds {len(counts)}")

    def blocks() -> Blocks:
        for block in table_blocks(tables["edge"], 2, np.int64):
            yield block[:, 0], block[:, 1]

    def features() -> Iterator[BitTensor]:
        for block in table_blocks(tables["node-feat"], None, np.float32):
            yield BitTensor.from_float(torch.from_numpy(block))

    return Source(str(folder), blocks, int(counts[0, 0]), None, features)


def _packed_blocks(x: Any) -> Iterator[BitTensor]:
    """Rows of features as bits: packed ones, the signs of floats, or those of a file."""
    if isinstance(x, str | os.PathLike):
        path = Path(x)
        if path.suffix == ".npy":
            yield from _packed_stream(ArrayStream.of(path))
            return
        x = FeatureFile(path).rows()
    if isinstance(x, BitTensor):
        size = int(x.shape[1])
        at_once = max(1, FEATURES_AT_ONCE // max(1, size))
        for begin in range(0, max(1, len(x)), at_once):
            rows = slice(begin, begin + at_once)
            scale = None if x.scale is None else x.scale[rows].cpu()
            yield BitTensor(x.words[rows].cpu(), size, scale)
    elif is_plain(x) and x.is_floating_point() and x.dim() == 2:
        at_once = max(1, FEATURES_AT_ONCE // max(1, x.size(1)))
        for block in x.split(at_once):
            yield BitTensor.from_float(block.detach().cpu())
    else:
        raise TypeError(
            f"{OWNER}: x must be a BitTensor, floats [N, F], or the path of an .npy file or of "
            f"packed bits, got {name_type(x)}"
        )


def is_plain(x: Any) -> TypeGuard[Tensor]:
    """True for a dense tensor of plain values."""
    is_packed = issubclass(type(x), PackedRows)
    return isinstance(x, Tensor) and not is_packed and x.layout == torch.strided


def _packed_stream(array: ArrayStream) -> Iterator[BitTensor]:
    if array.dtype.kind != "f" or len(array.shape) != 2:
        raise FileError(f"{array}: must hold floats [N, F], got {array.dtype} {list(array.shape)}")
    for block in array.blocks(max(1, FEATURES_AT_ONCE // max(1, array.shape[1]))):
        yield BitTensor.from_float(torch.from_numpy(block.astype(np.float32)))
