"""A tiny experiment on a tiny graph."""

import pytest
import torch
from torch_geometric.data import Data

from bitgnn.train import ExperimentConfig


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(90) % 3
    x = torch.randn(90, 20, generator=generator) + 2 * torch.eye(3, 20)[y]
    near = torch.stack([torch.arange(90), (torch.arange(90) + 3) % 90])  # of the same class
    edges = torch.cat([near, torch.randint(0, 90, (2, 60), generator=generator)], dim=1)
    masks = [torch.arange(90) // 30 == part for part in range(3)]
    return Data(
        x=x, edge_index=edges, y=y, train_mask=masks[0], val_mask=masks[1], test_mask=masks[2]
    )


@pytest.fixture
def graphs(data):
    return lambda seed: data


@pytest.fixture
def config():
    tiny = {"name": "tiny", "dataset": {"name": "digits"}, "hidden": 8, "seeds": 2, "epochs": 6}
    return ExperimentConfig.model_validate(tiny)
