"""load(): any graph for node classification by name or from PyG, checked and split."""

from __future__ import annotations

import copy
import os
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from bitgnn.data.files import DataError
from bitgnn.data.ogb_nodes import OGB_NAMES, read_ogb
from bitgnn.data.own_graphs import check_nodes, is_own_graph, one_graph, read_graph
from bitgnn.data.pyg_datasets import (
    FLICKR_STRUCTURE,
    SOURCES,
    normalized_name,
    read_flickr_structure,
    read_source,
)
from bitgnn.data.splits import MASKS, Split, per_class_split, public_split
from bitgnn.data.synthetic_graphs import NAMED_SIZES, synthetic

DIGITS = "digits"
SYNTHETIC = "synthetic"
NO_LABEL = -1
PIXEL_LEVELS = 16.0


def dataset_names() -> list[str]:
    """Names that :func:`load` takes."""
    real = [source.title for source in SOURCES.values()]
    return [*real, *OGB_NAMES, DIGITS, *(f"{SYNTHETIC}-{size}" for size in NAMED_SIZES)]


def load(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    split: Split = None,
    seed: int = 0,
    train_per_class: int = 20,
    val_per_class: int = 30,
    features: str | None = None,
) -> Data:
    """A graph for node classification, ready for training.

    Raw files are looked for in ``ROOT/<folder>`` and ``ROOT/<collection>/<folder>``, for example
    ``ROOT/Photo/raw`` and ``ROOT/amazon/Photo/raw``. A folder that cannot be written is copied
    (raw files only) to the user's cache folder, because PyG writes ``processed/`` next to ``raw/``.
    Files that are nowhere are downloaded from where PyG's class says; an interruption leaves none.

    The files are read by PyG's and ogb's own code. Planetoid's raw files and Penn94's splits are
    pickles, which can run any code when they are read: others than the published ones, told by
    their SHA-256, are refused unless the environment variable ``BITGNN_TRUST_PICKLES`` is 1. All
    other raw files are plain arrays, text, or archives of them.

    Args:
        name: one of :func:`dataset_names`; case, hyphens and underscores do not matter. Or a graph
            of one's own as :func:`bitgnn.data.read_graph` takes it, which draws 60, 20 and 20 per
            cent where there are no masks.
        root: data folder; None takes the environment variable ``BITGNN_DATA``, else ``./data``.
        split: which public split where a graph has several; None is the first. ``"random"`` takes
            the seeded split with equal classes although there is a public one. A graph without a
            public split has the seeded one in any case.
        seed: of the seeded split, of ``"digits"`` and of what is synthetic.
        train_per_class: training nodes of each class in the seeded split.
        val_per_class: validation nodes of each class in the seeded split; the rest is test.
        features: ``"synthetic"`` makes up features from the classes, only for Flickr, whose
            structure may be at hand without its features.

    Returns:
        ``Data`` with ``x`` float32 ``[N, F]``, ``edge_index`` int64 ``[2, E]``, ``y`` int64
        ``[N]`` (negative: no label), boolean ``train_mask``, ``val_mask``, ``test_mask`` ``[N]``,
        ``name``, and ``synthetic``: whether anything in it is made up.

    Raises:
        TypeError: ``name`` is not a string.
        ValueError: an unknown name, a split that the graph does not have, or classes too small
            for the seeded split.
        DataError: files are missing and cannot be downloaded, cannot be read, or hold something
            else than node classification.
        FileError: see :func:`bitgnn.data.read_graph`.
    """
    if not isinstance(name, str):
        raise TypeError(f"load: name must be a string, got {type(name).__name__}; see load_pyg")
    if features not in (None, "synthetic"):
        raise ValueError(f"load: features must be None or 'synthetic', got {features!r}")
    if is_own_graph(name):
        data = read_graph(name, root, split=split, seed=seed)
        return _ready(data, data.name, False, None, seed, train_per_class, val_per_class)
    data, title, is_synthetic = _read(name, root, seed, features)
    return _ready(data, title, is_synthetic, split, seed, train_per_class, val_per_class)


def _read(
    name: str, root: str | os.PathLike[str] | None, seed: int, features: str | None
) -> tuple[Any, str, bool]:
    """Graph as its source gives it, its title, and True if something is made up."""
    key = normalized_name(name)
    ogb = {normalized_name(known): known for known in OGB_NAMES}
    made = {normalized_name(f"{SYNTHETIC}-{size}"): size for size in NAMED_SIZES}
    if features is not None and key != "flickr":
        raise ValueError(f"load: features='synthetic' is for Flickr alone, got {name!r}")
    if key == DIGITS:
        return load_digits_graph(seed=seed), DIGITS, False
    if key in made:
        data = synthetic(made[key], seed=seed)
        return data, data.name, True
    if key in ogb:
        return read_ogb(ogb[key], root), ogb[key], False
    if key not in SOURCES:
        raise ValueError(f"load: name must be one of {dataset_names()}, got {name!r}")
    if features is not None:
        return read_flickr_structure(root, seed), FLICKR_STRUCTURE.title, True
    return read_source(SOURCES[key], root), SOURCES[key].title, False


def load_pyg(
    dataset: Any,
    *,
    name: str | None = None,
    split: Split = None,
    seed: int = 0,
    train_per_class: int = 20,
    val_per_class: int = 30,
) -> Data:
    """A graph of any PyG data set, in the form :func:`load` returns.

    Args:
        dataset: a PyG data set of one graph, or a graph (``Data``); unchanged.
        name: what to call it; None takes the data set's own name.
        split: see :func:`load`.
        seed: see :func:`load`.
        train_per_class: see :func:`load`.
        val_per_class: see :func:`load`.

    Returns:
        As :func:`load`; further attributes of the graph are kept.

    Raises:
        TypeError: neither a data set nor a graph of one kind of nodes.
        ValueError: see :func:`load`.
        DataError: it holds several graphs, or something else than node classification.
    """
    title = name or getattr(dataset, "name", None) or type(dataset).__name__
    data = one_graph(dataset, str(title))
    is_synthetic = bool(getattr(data, "synthetic", False))
    return _ready(data, str(title), is_synthetic, split, seed, train_per_class, val_per_class)


def _ready(
    data: Any,
    title: str,
    is_synthetic: bool,
    split: Split,
    seed: int,
    train_per_class: int,
    val_per_class: int,
) -> Data:
    """A checked copy of ``data`` with split; tensors are shared."""
    if not (split is None or split == "random" or isinstance(split, int)):
        raise ValueError(f"split must be a number, 'random' or None, got {split!r}")
    for key, what in (
        ("x", "node features (x)"),
        ("y", "labels (y)"),
        ("edge_index", "edge_index"),
    ):
        if not isinstance(getattr(data, key, None), Tensor):
            raise DataError(f"{title}: has no {what}")
    ready = copy.copy(data)
    x, edge_index = data.x, data.edge_index
    x = x if x.layout == torch.strided else x.to_dense()
    if x.dim() != 2 or x.is_complex():
        raise DataError(f"{title}: x must be [N, F] and real, got {list(x.shape)} {x.dtype}")
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.is_floating_point():
        raise DataError(
            f"{title}: edge_index must be an integer tensor [2, E], got "
            f"{list(edge_index.shape)} {edge_index.dtype}"
        )
    check_nodes(f"{title}: edge_index", edge_index, len(x), DataError)
    ready.x, ready.y = x.float(), _labels(data.y, len(x), title)
    masks: list[Any] = [getattr(data, key, None) for key in MASKS]
    if split != "random" and all(isinstance(mask, Tensor) for mask in masks):
        chosen = public_split(masks, split)
    else:
        chosen = per_class_split(ready.y, train_per_class, val_per_class, seed)
    for key, mask in zip(MASKS, chosen, strict=True):
        unlabelled = int((ready.y[mask] < 0).sum())
        if unlabelled:
            raise DataError(f"{title}: {unlabelled} nodes of {key} have no label")
        ready[key] = mask
    ready.name, ready.synthetic = title, is_synthetic
    return ready


def _labels(y: Tensor, nodes: int, title: str) -> Tensor:
    """Labels as one class a node; in floats NaN means none."""
    y = y.squeeze(1) if y.dim() == 2 and y.size(1) == 1 else y
    if y.dim() != 1 or y.size(0) != nodes:
        raise DataError(
            f"{title}: y must hold one class for each of {nodes} nodes, got "
            f"{list(y.shape)}; several labels a node and labels of a whole graph are not supported"
        )
    if y.is_floating_point():
        y = torch.where(y.isnan(), torch.full_like(y, NO_LABEL), y)
        if not torch.equal(y, y.round()):
            raise DataError(f"{title}: y must hold classes, got real numbers")
    return y.long()


def load_digits_graph(
    num_neighbors: int = 8, train_per_class: int = 20, num_val: int = 300, seed: int = 0
) -> Data:
    """scikit-learn's 1 797 digits (8x8 pixels, 10 classes) as a symmetric k-neighbour graph.

    Two images are joined where either is among the other's nearest in pixel space. The split
    depends only on ``seed``; what is neither training nor validation is test.

    Args:
        num_neighbors: neighbours of each image before the graph is made symmetric.
        train_per_class: training images of each class.
        num_val: validation images.
        seed: of the split.

    Returns:
        ``Data`` with ``x`` float32 ``[1797, 61]`` in [0, 1], the pixels that are not the same in
        all images, ``edge_index`` int64 ``[2, E]``, ``y`` int64 ``[1797]`` and the masks
        ``train_mask``, ``val_mask``, ``test_mask``.

    Raises:
        ValueError: a number is below 1 or the split leaves no test images.
    """
    from sklearn.datasets import load_digits  # scikit-learn takes seconds
    from sklearn.neighbors import NearestNeighbors

    pixels, labels = load_digits(return_X_y=True)
    num_nodes, num_classes = len(labels), int(labels.max()) + 1
    if min(num_neighbors, train_per_class, num_val) < 1:
        raise ValueError("load_digits_graph: all numbers must be at least 1")
    if train_per_class * num_classes + num_val >= num_nodes:
        raise ValueError(
            f"load_digits_graph: {train_per_class} training images a class and {num_val} for "
            f"validation leave none of {num_nodes} for the test"
        )
    # Brute force rounds differently with the number of threads, which decides ties.
    searcher = NearestNeighbors(n_neighbors=num_neighbors, algorithm="kd_tree").fit(pixels)
    near = searcher.kneighbors_graph().tocoo()
    edges = torch.stack([torch.from_numpy(near.row), torch.from_numpy(near.col)]).long()
    edges = torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1)
    varying = pixels.min(axis=0) < pixels.max(axis=0)
    x = torch.from_numpy(pixels[:, varying]).float() / PIXEL_LEVELS
    y = torch.from_numpy(labels).long()
    order = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))
    train = torch.cat([order[y[order] == c][:train_per_class] for c in range(num_classes)])
    train_mask = torch.zeros(num_nodes, dtype=torch.bool).index_fill_(0, train, True)
    rest = order[~train_mask[order]]
    val_mask = torch.zeros_like(train_mask).index_fill_(0, rest[:num_val], True)
    return Data(
        x=x,
        edge_index=edges,
        y=y,
        train_mask=train_mask,
        val_mask=val_mask,
        test_mask=~(train_mask | val_mask),
    )
