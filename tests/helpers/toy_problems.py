"""Small graphs with planted labels, and models on them."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

NODES, FEATURES, CLASSES = 240, 24, 3


def planted(**changes: Any) -> Data:
    """Three groups of nodes, most edges inside of them, features that tell groups apart in part."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(NODES) % CLASSES
    sources = torch.randint(NODES, (6 * NODES,), generator=generator)
    steps = torch.randint(NODES // CLASSES, (6 * NODES,), generator=generator)
    targets = (sources + CLASSES * steps) % NODES
    noise = torch.randint(NODES, (2, NODES), generator=generator)
    chance = 0.1 + 0.3 * (torch.arange(FEATURES) % CLASSES == y[:, None]).float()
    x = (torch.rand(NODES, FEATURES, generator=generator) < chance).float()
    masks = {
        "train_mask": torch.arange(NODES) < NODES // 4,
        "val_mask": (torch.arange(NODES) >= NODES // 4) & (torch.arange(NODES) < NODES // 2),
        "test_mask": torch.arange(NODES) >= NODES // 2,
    }
    edges = torch.cat((torch.stack((sources, targets)), noise), dim=1)
    return Data(**{"x": x, "edge_index": edges, "y": y, **masks, **changes})


class Own(nn.Module):
    """A user's own class: GraphConv, a skip connection, LayerNorm, a linear layer at the end."""

    def __init__(self, features: int = FEATURES, hidden: int = 16, outputs: int = CLASSES) -> None:
        super().__init__()
        self.conv1 = pyg.GraphConv(features, hidden)
        self.norm1 = nn.LayerNorm(hidden)
        self.conv2 = pyg.GraphConv(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Scores of nodes."""
        x = functional.relu(self.norm1(self.conv1(x, edge_index)))
        x = functional.dropout(x, 0.2, self.training)
        x = x + functional.relu(self.norm2(self.conv2(x, edge_index)))
        return self.out(x)


class Pooled(nn.Module):
    """Classes of graphs."""

    def __init__(self, features: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(features, hidden)
        self.conv2 = pyg.GCNConv(hidden, hidden)
        self.out = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Scores of graphs."""
        x = self.conv1(x, edge_index).relu()
        x = self.conv2(x, edge_index).relu()
        return self.out(pyg.global_mean_pool(x, batch))


def gcn(hidden: int = 16) -> nn.Module:
    """PyG's own GCN, weights of one seed."""
    torch.manual_seed(0)
    return pyg.GCN(FEATURES, hidden, 2, CLASSES, dropout=0.2)
