"""Statistics of graphs: counted by hand on a small one, defined for empty ones."""

import pytest
import torch
from torch_geometric.data import Data

from bench import show


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
    monkeypatch.setattr(show, "EDGES_AT_ONCE", edges_at_once)
    assert show.graph_statistics(data) == {
        "graph": "drawn",
        "nodes": "6 (2 isolated)",
        "edges": "5 (2 self loops)",
        "in-degree": "min 0, median 0, mean 0.8, max 2",
        "features": "2 (33.3% not 0)",
        "classes": "2 (2 nodes without label)",
        # 0-1 agree, 1-2 do not, two loops agree, 5-1 has an end without label.
        "edge homophily": "0.750",
        "train / val / test": "2 / none / 4",
    }


@pytest.mark.parametrize("num_nodes", [0, 1])
def test_graphs_without_edges(num_nodes):
    found = show.graph_statistics(
        Data(
            x=torch.ones(num_nodes, 3),
            edge_index=torch.empty((2, 0), dtype=torch.int64),
            y=torch.zeros(num_nodes, dtype=torch.int64),
        )
    )
    assert found["nodes"] == f"{num_nodes} ({num_nodes} isolated)"
    assert found["in-degree"] == "min 0, median 0, mean 0.0, max 0"
    assert found["edge homophily"] == "nan"
