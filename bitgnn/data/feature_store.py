"""PackedFeatureStore: packed features on disk, as feature store and graph store of PyG."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from bitgnn._files import FileError
from bitgnn.data.feature_file import FeatureFile, write_features

FEATURES = "x"
"""Name of the attribute that files hold."""


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
        """Write a file of features; see :func:`~bitgnn.data.feature_file.write_features`.

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
        kind = edge_attr.edge_type
        ends = (None, None) if kind is None else (kind[0], kind[-1])
        for side, group in enumerate(ends):
            self._check_nodes(edge_index, edge_attr, side, group)
        self._edges[_edge_key(edge_attr)] = edge_index
        return True

    def _check_nodes(self, edge_index: Any, attr: EdgeAttr, side: int, group: str | None) -> None:
        """Require the nodes and, where the file tells it, the graph of a file."""
        file = self._files.get(group)
        if file is None:
            return
        rows, size = file.shape[0], attr.size
        nodes = rows if size is None or size[side] is None else size[side]
        is_coo = attr.layout == EdgeLayout.COO
        if is_coo and edge_index[side].numel():
            nodes = max(nodes, int(edge_index[side].max()) + 1)
        if nodes != rows:
            raise FileError(f"{file.path}: holds features of {rows} nodes, the graph has {nodes}")
        if is_coo and attr.edge_type is None:
            file.check_graph(edge_index)

    def _get_edge_index(self, edge_attr: EdgeAttr) -> Any:
        return self._edges.get(_edge_key(edge_attr))

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        return self._edges.pop(_edge_key(edge_attr), None) is not None

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Edge indices that were put in."""
        return [EdgeAttr(*key) for key in self._edges]


def _edge_key(attr: EdgeAttr) -> tuple[Any, ...]:
    return attr.edge_type, attr.layout, attr.is_sorted, attr.size
