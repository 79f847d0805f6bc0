"""Graphs for training, demo and benchmarks, real and synthetic ones, and their mini-batches."""

import importlib
from typing import TYPE_CHECKING, Any

from bitgnn.data.files import DataError

if TYPE_CHECKING:
    from bitgnn.data.features import PackedFeatureStore
    from bitgnn.data.loading import dataset_names, load, load_digits_graph, load_pyg
    from bitgnn.data.neighbor_sampler import NeighborLoader, NeighborSampler
    from bitgnn.data.own_graphs import read_graph
    from bitgnn.data.splits import per_class_split
    from bitgnn.data.synthetic_graphs import synthetic

# Imported on first use: PyTorch Geometric and scikit-learn take seconds each.
_LAZY = {
    "NeighborLoader": "neighbor_sampler",
    "NeighborSampler": "neighbor_sampler",
    "PackedFeatureStore": "features",
    "dataset_names": "loading",
    "load": "loading",
    "load_digits_graph": "loading",
    "load_pyg": "loading",
    "per_class_split": "splits",
    "read_graph": "own_graphs",
    "synthetic": "synthetic_graphs",
}

__all__ = [
    "DataError",
    "NeighborLoader",
    "NeighborSampler",
    "PackedFeatureStore",
    "dataset_names",
    "load",
    "load_digits_graph",
    "load_pyg",
    "per_class_split",
    "read_graph",
    "synthetic",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'bitgnn.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bitgnn.data.{_LAZY[name]}"), name)
