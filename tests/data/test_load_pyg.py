"""load_pyg(): any data set or graph of PyG, and clear words for those that do not fit."""

import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.datasets import FakeDataset, KarateClub

from bitgnn.data import DataError, load_pyg
from bitgnn.data.splits import MASKS

SMALL = {"train_per_class": 1, "val_per_class": 1}


@pytest.fixture
def data():
    y = torch.arange(12) % 3
    return Data(x=torch.rand(12, 4), edge_index=torch.tensor([[0, 8], [1, 0]]), y=y)


def test_a_data_set():
    loaded = load_pyg(KarateClub(), **SMALL)
    assert (loaded.name, loaded.synthetic) == ("KarateClub", False)
    # KarateClub has training nodes only: the seeded split takes their place.
    assert int(loaded.train_mask.sum()) == int(loaded.val_mask.sum()) == 4


def test_a_graph_is_not_changed(data):
    data.edge_weight = torch.rand(2)
    keys = sorted(data.keys())
    loaded = load_pyg(data, name="mine", **SMALL)
    assert torch.equal(loaded.edge_weight, data.edge_weight)
    assert loaded.x.data_ptr() == data.x.data_ptr()
    assert sorted(data.keys()) == keys
    assert load_pyg(loaded).name == loaded.name == "mine"
    assert torch.equal(load_pyg(loaded).train_mask, loaded.train_mask)
    data.synthetic = True
    assert load_pyg(data, **SMALL).synthetic


def test_forms_of_features_and_labels(data):
    y = data.y.clone()
    data.x, data.y = data.x.double().to_sparse(), y[:, None].float()
    data.y[4] = float("nan")
    loaded = load_pyg(data, **SMALL)
    assert (loaded.x.dtype, loaded.x.layout) == (torch.float32, torch.strided)
    assert loaded.y[4] == -1
    assert torch.equal(loaded.y[:4], y[:4])
    assert not (loaded.train_mask | loaded.val_mask | loaded.test_mask)[4]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("x", None, r"graph: has no node features \(x\)"),
        ("y", None, r"graph: has no labels \(y\)"),
        ("edge_index", None, "graph: has no edge_index"),
        ("x", torch.rand(12), r"x must be \[N, F\] and real, got \[12\]"),
        ("y", torch.rand(12, 3), "one class for each of 12 nodes, got .*several labels"),
        ("y", torch.zeros(1), r"one class for each of 12 nodes, got \[1\].*labels of a whole"),
        ("y", torch.rand(12), "y must hold classes, got real numbers"),
        ("edge_index", torch.tensor([[0, 12], [1, 0]]), "nodes from 0 to 11, got 0 to 12"),
        ("edge_index", torch.tensor([[0], [-1]]), "nodes from 0 to 11, got -1 to 0"),
        ("edge_index", torch.rand(2, 3), r"an integer tensor \[2, E\], got .*float32"),
        ("edge_index", torch.tensor([0, 1]), r"an integer tensor \[2, E\], got \[2\]"),
    ],
)
def test_graphs_that_do_not_fit(data, name, value, message):
    data[name] = value
    with pytest.raises(DataError, match=message):
        load_pyg(data, name="graph", **SMALL)


def test_masks_of_nodes_without_a_label(data):
    for key in MASKS:
        data[key] = torch.ones(12, dtype=torch.bool)
    data.y[3:5] = -1
    with pytest.raises(DataError, match="2 nodes of train_mask have no label"):
        load_pyg(data)
    assert int(load_pyg(data, split="random", **SMALL).train_mask.sum()) == 3


@pytest.mark.parametrize("num_nodes", [0, 1])
def test_graphs_too_small_to_split(num_nodes):
    edges = torch.empty((2, 0), dtype=torch.int64)
    data = Data(x=torch.rand(num_nodes, 2), edge_index=edges, y=torch.zeros(num_nodes).long())
    with pytest.raises(ValueError, match=r"no node has a label|class 0 has 1 nodes"):
        load_pyg(data)
    for key in MASKS:
        data[key] = torch.ones(num_nodes, dtype=torch.bool)
    assert load_pyg(data).num_nodes == num_nodes


class Hetero(InMemoryDataset):
    def __init__(self):
        super().__init__()
        self.data, self.slices = self.collate([HeteroData(a={"x": torch.rand(2, 2)})])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: FakeDataset(num_graphs=3), DataError, "FakeDataset: must hold one graph, got 3"),
        (HeteroData, TypeError, "one kind of nodes, got HeteroData"),
        (lambda: "Cora", TypeError, r"must be a PyG data set or a Data .* got str"),
        (Hetero, TypeError, "got HeteroData"),
    ],
)
def test_other_kinds(make, error, message):
    with pytest.raises(error, match=message):
        load_pyg(make())
