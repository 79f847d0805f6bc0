"""A trained binary GCN and its graph, small but with every odd case."""

import pytest
import torch
from chains import FEATURES as CHAIN_FEATURES
from chains import N as CHAIN_NODES
from graphs import odd_graph
from torch.nn import functional

from bitgnn.models import GCN

N, FEATURES, CLASSES = 120, 75, 5


@pytest.fixture
def graph():
    return odd_graph(N, 300, seed=3)


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
    return odd_graph(CHAIN_NODES, 260, seed=3)


@pytest.fixture
def x():
    return torch.randn(CHAIN_NODES, CHAIN_FEATURES, generator=torch.Generator().manual_seed(4))
