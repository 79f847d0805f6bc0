"""Random neighbours hop by hop in plain torch: mini-batches where no sampler of PyG's is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data


def neighbour_batches(
    edge_index: Tensor,
    num_nodes: int,
    *,
    fanouts: Sequence[int],
    batch_size: int,
    seeds: Tensor | None = None,
    random_seed: int = 0,
) -> Iterator[Data]:
    """Batches as PyG's ``NeighborLoader`` gives them, which needs ``pyg-lib`` or ``torch-sparse``.

    A node's neighbours are drawn with replacement and each edge is kept once, so a node gets at
    most ``fanout`` of them, fewer where a draw repeats.

    Yields:
        ``Data`` with ``edge_index`` (numbers inside the batch), ``n_id`` (its nodes in the whole
        graph, seeds first) and ``batch_size``.
    """
    generator = torch.Generator().manual_seed(random_seed)
    sources, destinations = edge_index
    if bool((destinations.diff() < 0).any()):
        sources = sources[torch.argsort(destinations, stable=True)]
    rowptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(destinations, minlength=num_nodes), 0, out=rowptr[1:])
    places = torch.full((num_nodes,), -1, dtype=torch.int64)
    every = torch.arange(num_nodes) if seeds is None else seeds
    for batch in every.split(batch_size):
        nodes, edges = [batch], []
        places[batch] = torch.arange(len(batch))
        for fanout in fanouts:
            frontier = nodes[-1]
            drawn = _drawn(frontier, rowptr, fanout, generator)
            owners = torch.searchsorted(rowptr, drawn, right=True) - 1
            found = sources[drawn]
            new = torch.unique(found[places[found] < 0])
            places[new] = torch.arange(len(new)) + sum(map(len, nodes))
            nodes.append(new)
            edges.append(torch.stack([places[found], places[owners]]))
        n_id = torch.cat(nodes)
        places[n_id] = -1
        yield Data(edge_index=torch.cat(edges, dim=1), n_id=n_id, batch_size=len(batch))


def _drawn(nodes: Tensor, rowptr: Tensor, fanout: int, generator: torch.Generator) -> Tensor:
    """Places of the edges drawn for ``nodes``, each once, in order."""
    degree = rowptr[nodes + 1] - rowptr[nodes]
    place = torch.rand(len(nodes), fanout, generator=generator, dtype=torch.float64)
    edge = rowptr[nodes].unsqueeze(1) + (place * degree.unsqueeze(1)).long()
    return torch.unique(edge[degree > 0])
