"""Graphs for training, demo and benchmarks: real ones by name, any of PyG's, synthetic ones."""

import importlib
from typing import TYPE_CHECKING, Any

from bitgnn.data.errors import DataError

if TYPE_CHECKING:
    from bitgnn.data.digits import load_digits_graph
    from bitgnn.data.loading import dataset_names, load, load_pyg
    from bitgnn.data.planetoid import load_planetoid
    from bitgnn.data.splits import per_class_split
    from bitgnn.data.synthetic_graphs import synthetic

# Imported on first use: PyTorch Geometric and scikit-learn take seconds each.
_LAZY = {
    "dataset_names": "loading",
    "load": "loading",
    "load_digits_graph": "digits",
    "load_planetoid": "planetoid",
    "load_pyg": "loading",
    "per_class_split": "splits",
    "synthetic": "synthetic_graphs",
}

__all__ = [
    "DataError",
    "dataset_names",
    "load",
    "load_digits_graph",
    "load_planetoid",
    "load_pyg",
    "per_class_split",
    "synthetic",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'bitgnn.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bitgnn.data.{_LAZY[name]}"), name)
