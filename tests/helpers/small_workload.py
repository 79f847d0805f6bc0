"""A small trained-looking model on a graph with odd nodes, as a workload of the tuner."""

import torch
from graphs import odd_graph
from torch_geometric.data import Data

from bitgnn.models import GCN
from bitgnn.tune.workload import Workload

NODES, FEATURES, CLASSES = 90, 70, 4


def small_data() -> Data:
    """Half of the nodes are trained on, the others validate."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(NODES, FEATURES, generator=generator)
    y = torch.randint(CLASSES, (NODES,), generator=generator)
    train = torch.arange(NODES) < NODES // 2
    edge_index = odd_graph(NODES, 240, seed=2).unique(dim=1)
    return Data(x=x, edge_index=edge_index, y=y, train_mask=train, val_mask=~train)


def small_workload(data: Data) -> Workload:
    """A binary GCN whose batch norm has seen the features."""
    torch.manual_seed(0)
    model = GCN(FEATURES, 40, CLASSES, precision="bin")
    model(data.x, data.edge_index)
    return Workload.of(model.eval(), data)
