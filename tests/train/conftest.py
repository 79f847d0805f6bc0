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
    edges = torch.randint(0, 90, (2, 200), generator=generator)
    masks = [torch.arange(90) // 30 == part for part in range(3)]
    return Data(
        x=x, edge_index=edges, y=y, train_mask=masks[0], val_mask=masks[1], test_mask=masks[2]
    )


@pytest.fixture
def graphs(data):
    return lambda seed: data


@pytest.fixture
def config():
    recipe = {"epochs": 4, "learning_rate": 0.01}
    return ExperimentConfig.model_validate(
        {
            "name": "tiny",
            "dataset": {"name": "digits"},
            "hidden_channels": 8,
            "seeds": 2,
            "forms": {
                "fp32": {**recipe, "input_norm": False},
                "full": recipe,
                "bin": {**recipe, "start_from": "full", "distill": 1.0, "schedule": "cosine"},
            },
        }
    )
