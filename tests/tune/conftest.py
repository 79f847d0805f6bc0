"""A small graph with odd nodes, told by neighbours, and a float model of it."""

import pytest
import torch
from graphs import odd_graph
from torch_geometric.data import Data
from torch_geometric.nn import GCN

NODES, FEATURES, HIDDEN, CLASSES = 90, 70, 16, 4


@pytest.fixture
def data():
    """A third of the nodes each to train on, to validate, and to test."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(NODES, FEATURES, generator=generator)
    edge_index = odd_graph(NODES, 240, seed=2).unique(dim=1)
    source, target = edge_index
    parts = x[:, :CLASSES]
    y = parts.clone().index_add_(0, target, parts[source]).argmax(1)
    third = torch.arange(NODES) % 3
    masks = {"train_mask": third == 0, "val_mask": third == 1, "test_mask": third == 2}
    return Data(x=x, edge_index=edge_index, y=y, **masks)


@pytest.fixture
def model():
    """A float model that was not trained."""
    torch.manual_seed(0)
    return GCN(FEATURES, HIDDEN, 2, CLASSES)
