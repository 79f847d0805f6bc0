"""A trained binary GCN and its graph, small but with every odd case."""

import pytest
import torch
from chains import FEATURES as CHAIN_FEATURES
from chains import N as CHAIN_NODES
from torch.nn import functional

from bitgnn.models import GCN

N, FEATURES, CLASSES = 120, 75, 5


@pytest.fixture
def graph():
    generator = torch.Generator().manual_seed(3)
    edges = torch.randint(0, N - 1, (2, 300), generator=generator)
    # Node N - 1 stays isolated; a duplicate edge and a self loop are added.
    return torch.cat([edges, edges[:, :1], torch.tensor([[4], [4]])], dim=1)


@pytest.fixture
def features():
    """Counts with many zeros, a constant feature and one that never occurs."""
    x = torch.poisson(torch.full((N, FEATURES), 0.4), torch.Generator().manual_seed(4))
    x[:, 0] = 1.0
    x[:, 1] = 0.0
    return x


@pytest.fixture
def make_model(graph, features):
    def make(precision, num_layers=2, **options):
        torch.manual_seed(0)
        model = GCN(FEATURES, 40, CLASSES, num_layers, precision, dropout=0.2, **options)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        y = torch.arange(N) % CLASSES
        for _ in range(8):
            optimizer.zero_grad()
            functional.cross_entropy(model(features, graph), y).backward()
            optimizer.step()
        return model.eval()

    return make


@pytest.fixture
def edges():
    generator = torch.Generator().manual_seed(3)
    found = torch.randint(0, CHAIN_NODES - 1, (2, 260), generator=generator)
    # Node CHAIN_NODES - 1 stays isolated; a duplicate edge and a self loop are added.
    return torch.cat([found, found[:, :1], torch.tensor([[4], [4]])], dim=1)


@pytest.fixture
def x():
    return torch.randn(CHAIN_NODES, CHAIN_FEATURES, generator=torch.Generator().manual_seed(4))
