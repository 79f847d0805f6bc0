"""What a training step sees: the whole graph, sampled neighbourhoods, or random walks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric import typing as pyg
from torch_geometric.data import Data
from torch_geometric.loader import GraphSAINTRandomWalkSampler

from bitgnn.data import NeighborLoader
from bitgnn.train.recipe import FullGraph, Neighbors, RandomWalks
from bitgnn.train.task import NodeTask

INSTALL = "pip install --no-build-isolation 'bitgnn[sparse]'"


class LoaderError(RuntimeError):
    """A loader needs a library that is not installed; the message says which extra brings it."""


@dataclass(frozen=True)
class Batch:
    """One training step's part of a graph.

    Attributes:
        x: ``[n, F]`` features.
        edge_index: ``[2, e]`` among its nodes.
        y: ``[n]`` labels.
        train: rows that the loss is taken over.
        nodes: ``[n]`` numbers of its nodes in the graph; None for all of them in order.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    train: Tensor
    nodes: Tensor | None = None


def make_batches(
    loader: FullGraph | Neighbors | RandomWalks, task: NodeTask
) -> Callable[[], Iterator[Batch]]:
    """A function that starts an epoch's batches.

    Sampling runs on the CPU with torch's default generator; only node numbers and edges of a
    batch move to the device.

    Raises:
        LoaderError: PyG's sampler of random walks lacks its library.
    """
    if isinstance(loader, FullGraph):
        whole = Batch(task.x, task.edge_index, task.y, task.train)
        return lambda: iter((whole,))
    # Node numbers travel as an attribute, so that every sampler selects them like features.
    graph = Data(
        edge_index=task.edge_index.cpu(),
        number=torch.arange(task.x.size(0)),
        num_nodes=task.x.size(0),
    )
    if isinstance(loader, Neighbors):
        return _neighbor_batches(loader, task, graph)
    return _walk_batches(loader, task, graph)


def _neighbor_batches(
    loader: Neighbors, task: NodeTask, graph: Data
) -> Callable[[], Iterator[Batch]]:
    sampler = NeighborLoader(
        graph,
        num_neighbors=list(loader.neighbors),
        input_nodes=task.train.cpu(),
        batch_size=loader.batch_size,
        shuffle=True,
    )

    def epoch() -> Iterator[Batch]:
        for sample in sampler:
            # The nodes asked for come first.
            yield _batch(task, sample, torch.arange(sample.batch_size))

    return epoch


def _walk_batches(
    loader: RandomWalks, task: NodeTask, graph: Data
) -> Callable[[], Iterator[Batch]]:
    if not pyg.WITH_TORCH_SPARSE:
        raise LoaderError(
            f"loader saint_rw: PyG's GraphSAINTRandomWalkSampler needs torch-sparse: {INSTALL}"
        )
    sampler = GraphSAINTRandomWalkSampler(
        graph,
        batch_size=loader.roots,
        walk_length=loader.walk_length,
        num_steps=loader.steps,
        sample_coverage=0,
        log=False,
    )
    is_train = torch.zeros(task.x.size(0), dtype=torch.bool)
    is_train[task.train.cpu()] = True

    def epoch() -> Iterator[Batch]:
        for sample in sampler:
            train = is_train[sample.number].nonzero().flatten()
            if train.numel() > 0:
                yield _batch(task, sample, train)

    return epoch


def _batch(task: NodeTask, sample: Data, train: Tensor) -> Batch:
    nodes = sample.number.to(task.device)
    return Batch(
        task.x[nodes],
        sample.edge_index.to(task.device),
        task.y[nodes],
        train.to(task.device),
        nodes,
    )
