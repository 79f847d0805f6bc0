"""Graphs and features that all layer tests share."""

import pytest
import torch

NODES, WIDTH = 30, 40


@pytest.fixture
def graph():
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(0, NODES, (2, 90), generator=generator)
    # An isolated node, one with a self loop and a double edge belong to every graph worth testing.
    edges = edges[:, (edges != 7).all(0)]
    return torch.cat([edges, torch.tensor([[3, 4, 4], [3, 5, 5]])], dim=1)


@pytest.fixture
def simple(graph):
    """Without loops and double edges, which PyG's matrix forms count in ways of their own."""
    return torch.unique(graph[:, graph[0] != graph[1]], dim=1)


@pytest.fixture
def bipartite():
    """Edges from 30 sources to 9 destinations, the last one isolated."""
    generator = torch.Generator().manual_seed(3)
    sources = torch.randint(0, NODES, (1, 50), generator=generator)
    destinations = torch.randint(0, 8, (1, 50), generator=generator)
    return torch.unique(torch.cat([sources, destinations]), dim=1)


@pytest.fixture
def x():
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(2))
