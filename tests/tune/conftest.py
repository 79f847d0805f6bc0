"""A small trained-looking model on a graph with odd nodes, as a workload."""

import pytest
import torch
from graphs import odd_graph
from torch_geometric.data import Data

from bitgnn.models import GCN
from bitgnn.tune.workload import Workload

NODES, FEATURES, CLASSES = 90, 70, 4


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(NODES, FEATURES, generator=generator)
    y = torch.randint(CLASSES, (NODES,), generator=generator)
    train = torch.arange(NODES) < NODES // 2
    edge_index = odd_graph(NODES, 240, seed=2).unique(dim=1)
    return Data(x=x, edge_index=edge_index, y=y, train_mask=train, val_mask=~train)


@pytest.fixture
def workload(data):
    torch.manual_seed(0)
    model = GCN(FEATURES, 40, CLASSES, precision="bin")
    model(data.x, data.edge_index)  # the batch norm takes the statistics of the features
    return Workload.of(model.eval(), data)
