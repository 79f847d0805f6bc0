"""PackedFeatureStore: packed features in mapped safetensors files, as PyG's feature store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from bitgnn._checks import name_type
from bitgnn._files import FileError
from bitgnn.data.feature_file import FeatureFile, write_features

FEATURES = "x"
"""Name of the attribute that files hold."""


class PackedFeatureStore(FeatureStore, GraphStore):
    """Packed features of any size in files, with a graph and labels in memory.

    :class:`~bitgnn.data.NeighborLoader` and PyG's loaders take it in both roles, as a pair
    ``(store, store)``. Rows are read from the mapped file when a batch needs them and are
    :class:`~bitgnn.bits.BitFeatures` or :class:`~bitgnn.bits.Int8Features`, as the file has it.
    Other tensors, labels for example, and edge indices are put in as PyG's stores have it::

        PackedFeatureStore.write("x.safetensors", blocks, edge_index)
        store = PackedFeatureStore("x.safetensors")
        store.put_edge_index(edge_index, edge_type=None, layout="coo", size=(n, n))
        store.put_tensor(y, group_name=None, attr_name="y", index=None)

    Rows are copies; all of them at once (``index=None``) are a view of the mapped file, which must
    not be cut short in its place while that lives. :meth:`write` replaces files as a whole.

    Args:
        files: the file of the nodes' features; of a heterogeneous graph one for each node type.
        fingerprint: of the scales that 8-bit rows must be packed with, by node type where
            ``files`` are; a model's is ``model.pack_features(x[:0]).fingerprint``. None takes any.

    Raises:
        FileError: a file is cut short, altered or of another kind, or its rows were packed with
            other scales.
        TypeError: a fingerprint is no int.
        ValueError: a fingerprint is of a node type without a file.
        OSError: a file cannot be read.
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
        fingerprint: int | Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        named = files if isinstance(files, Mapping) else {None: files}
        self._files = {group: FeatureFile(path) for group, path in named.items()}
        wanted: Mapping[Any, Any] = {}
        if isinstance(fingerprint, Mapping):
            wanted = fingerprint
        elif fingerprint is not None:
            wanted = dict.fromkeys(self._files, fingerprint)
        for group, number in wanted.items():
            if not isinstance(number, int) or isinstance(number, bool):
                raise TypeError(
                    f"PackedFeatureStore: fingerprint must be an int, got {name_type(number)}"
                )
            if group not in self._files:
                raise ValueError(
                    f"PackedFeatureStore: fingerprint must be of {list(self._files)} as files are, "
                    f"got {group!r}"
                )
            self._files[group].check_fingerprint(number)
        self._tensors: dict[tuple[Any, Any], Any] = {}
        self._edges: dict[tuple[Any, ...], Any] = {}

    @staticmethod
    def write(
        path: str | os.PathLike[str], blocks: Iterable[Any], edge_index: Tensor | None = None
    ) -> None:
        """Write a file of features block by block; it appears whole or not at all.

        The file is one of safetensors. Bits are ``words`` int32 ``[N, ceil(size / 32)]`` and
        ``scale`` float32 ``[N]`` where the blocks have one; 8-bit rows are ``codes`` int8
        ``[N, 16 * ceil(size / 16)]``, ``centre`` and ``step`` float32 ``[size]``. The number of
        features, a SHA-256 of all tensors, the digest of the graph and the fingerprint of the
        scales are metadata.

        Args:
            path: the file; its folder exists.
            blocks: ``BitTensor``, ``Int8Tensor`` or floats, whose signs are packed, ``[n, size]``
                in the order of the nodes; memory holds one at a time.
            edge_index: ``[2, E]``, the graph that they belong to, which the store then insists on.

        Raises:
            TypeError: a block is of another kind.
            ValueError: there is no block, or kinds, sizes or scales differ.
            OSError: the file cannot be written.
        """
        write_features(path, blocks, edge_index)

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
