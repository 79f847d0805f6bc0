"""Loaders that configurations name: what a training step sees of a graph."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable

import torch
from torch_geometric import typing as pyg
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData
from torch_geometric.loader import GraphSAINTRandomWalkSampler
from torch_geometric.utils import to_torch_csr_tensor

from bitgnn.data import NeighborLoader
from bitgnn.train.config import Neighbors, RandomWalks

__all__ = ["LoaderError", "make_loader", "whole_graph"]

INSTALL = "pip install --no-build-isolation 'bitgnn[sparse]'"


class LoaderError(RuntimeError):
    """A loader needs a library that is not installed; the message says which extra brings it."""


def make_loader(loader: Neighbors | RandomWalks | None, data: Data) -> Iterable[BaseData] | None:
    """A loader of a graph, as :func:`bitgnn.distill` takes it.

    Sampling runs on the CPU with torch's default generator.

    Args:
        loader: what a configuration says; None is the whole graph.
        data: the graph, with ``train_mask``.

    Raises:
        LoaderError: PyG's sampler of random walks lacks its library.
    """
    if loader is None:
        return None
    if isinstance(loader, Neighbors):
        return NeighborLoader(
            data,
            num_neighbors=list(loader.neighbors),
            input_nodes=data.train_mask,
            batch_size=loader.batch_size,
            shuffle=True,
        )
    if not pyg.WITH_TORCH_SPARSE:
        raise LoaderError(
            f"loader saint_rw: PyG's GraphSAINTRandomWalkSampler needs torch-sparse: {INSTALL}"
        )
    numbered = copy.copy(data)
    numbered.n_id = torch.arange(data.x.size(0))  # of the teacher's scores of the whole graph
    return GraphSAINTRandomWalkSampler(
        numbered,
        batch_size=loader.roots,
        walk_length=loader.walk_length,
        num_steps=loader.steps,
        sample_coverage=0,
        log=False,
    )


def whole_graph(loader: Neighbors | RandomWalks | None, data: Data) -> Data:
    """The graph as validation takes it.

    Where steps see parts, the whole may be far larger than what fits one: its edges become a sparse
    matrix, whose products need no memory for messages.

    Args:
        loader: what a configuration says.
        data: the graph, with an edge index.
    """
    if loader is None:
        return data
    found = copy.copy(data)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
        # Rows are destinations.
        size = (data.x.size(0), data.x.size(0))
        found.edge_index = to_torch_csr_tensor(data.edge_index.flip(0), size=size)
    return found
