"""A graph that needs no download: handwritten digits joined to their nearest neighbours."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors
from torch_geometric.data import Data

__all__ = ["load_digits_graph"]

PIXEL_LEVELS = 16.0


def load_digits_graph(
    num_neighbors: int = 8, train_per_class: int = 20, num_val: int = 300, seed: int = 0
) -> Data:
    """scikit-learn's 1 797 digits (8x8 pixels, 10 classes) as a symmetric k-neighbour graph.

    Two images are joined where either is among the other's nearest in pixel space. The split
    depends on ``seed`` alone; what is neither training nor validation is test.

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
