"""Graphs, images and sentences for training, demo and benchmarks: real and synthetic ones."""

import importlib
from typing import TYPE_CHECKING, Any

from bitgnn.data.files import DataError

if TYPE_CHECKING:
    from bitgnn.data.digits import load_digits_graph
    from bitgnn.data.feature_store import PackedFeatureStore
    from bitgnn.data.glue import TextData, TextSet, load_text
    from bitgnn.data.images import (
        ImageData,
        ImageSet,
        load_image_folder,
        load_images,
    )
    from bitgnn.data.loading import dataset_names, load, load_pyg
    from bitgnn.data.neighbor_sampler import NeighborLoader, NeighborSampler
    from bitgnn.data.own_graphs import read_graph, write_graph
    from bitgnn.data.splits import per_class_split
    from bitgnn.data.synthetic_graphs import synthetic
    from bitgnn.data.tokens import TokenData, TokenSet, tokenize

# Imported on first use: PyTorch Geometric and scikit-learn take seconds each.
_LAZY = {
    "ImageData": "images",
    "ImageSet": "images",
    "NeighborLoader": "neighbor_sampler",
    "NeighborSampler": "neighbor_sampler",
    "PackedFeatureStore": "feature_store",
    "TextData": "glue",
    "TextSet": "glue",
    "TokenData": "tokens",
    "TokenSet": "tokens",
    "dataset_names": "loading",
    "load": "loading",
    "load_digits_graph": "digits",
    "load_image_folder": "images",
    "load_images": "images",
    "load_pyg": "loading",
    "load_text": "glue",
    "per_class_split": "splits",
    "read_graph": "own_graphs",
    "synthetic": "synthetic_graphs",
    "tokenize": "tokens",
    "write_graph": "own_graphs",
}

__all__ = [
    "DataError",
    "ImageData",
    "ImageSet",
    "NeighborLoader",
    "NeighborSampler",
    "PackedFeatureStore",
    "TextData",
    "TextSet",
    "TokenData",
    "TokenSet",
    "dataset_names",
    "load",
    "load_digits_graph",
    "load_image_folder",
    "load_images",
    "load_pyg",
    "load_text",
    "per_class_split",
    "read_graph",
    "synthetic",
    "tokenize",
    "write_graph",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'bitgnn.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bitgnn.data.{_LAZY[name]}"), name)
