"""Statistics of graphs: counted by hand on a small one, defined for empty ones."""

import math

import pytest
import torch
from torch_geometric.data import Data

from bench import statistics
from bench.statistics import graph_statistics


@pytest.fixture
def data():
    # 0 -> 1 -> 2, 2 -> 2 (loop), 3 only a loop, 4 isolated, 5 -> 1
    edges = torch.tensor([[0, 1, 2, 3, 5], [1, 2, 2, 3, 1]])
    x = torch.tensor([[1.0, 0.0], [0.0, 0.0], [2.0, -1.0], [0.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    y = torch.tensor([0, 0, 1, 1, -1, -1])
    mask = torch.tensor([True, False, True, False, False, False])
    return Data(x=x, edge_index=edges, y=y, train_mask=mask, test_mask=~mask, name="drawn")


@pytest.mark.parametrize("edges_at_once", [1, 2, 1 << 24])
def test_a_graph_counted_by_hand(data, monkeypatch, edges_at_once):
    monkeypatch.setattr(statistics, "EDGES_AT_ONCE", edges_at_once)
    found = graph_statistics(data)
    assert (found.num_nodes, found.num_edges, found.num_features) == (6, 5, 2)
    assert found.num_self_loops == 2
    assert found.num_isolated == 2
    assert found.degrees == (0, 0, pytest.approx(5 / 6), 2)
    assert found.density == pytest.approx(4 / 12)
    assert (found.num_classes, found.num_unlabelled) == (2, 2)
    # 0-1 agree, 1-2 do not, two loops agree, 5-1 has an end without label.
    assert found.homophily == pytest.approx(3 / 4)
    assert found.split == (2, None, 4)
    text = str(found)
    assert "graph               drawn" in text
    assert "2 / none / 4" in text


@pytest.mark.parametrize("num_nodes", [0, 1])
def test_graphs_without_edges(num_nodes):
    found = graph_statistics(
        Data(
            x=torch.ones(num_nodes, 3),
            edge_index=torch.empty((2, 0), dtype=torch.int64),
            y=torch.zeros(num_nodes, dtype=torch.int64),
        )
    )
    assert found.num_isolated == num_nodes
    assert found.degrees == (0, 0, 0.0, 0)
    assert math.isnan(found.homophily)
    assert str(found)
