"""Workloads: what is taken, moved and refused."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv

from bitgnn.models import GCN, GraphSAGE
from bitgnn.nn import GCNConv
from bitgnn.tune.workload import Workload

NODES, FEATURES, CLASSES = 90, 70, 4


@pytest.fixture
def model():
    return GCN(FEATURES, 16, CLASSES, precision="bin")


def test_what_it_holds(model, data):
    data.edge_weight = torch.rand(data.edge_index.size(1))
    data.test_mask = data.val_mask.clone()
    workload = Workload.of(model, data)
    assert workload.model is model
    assert workload.x.equal(data.x)
    assert workload.edge_weight.equal(data.edge_weight)
    assert workload.test_mask.equal(data.test_mask)
    assert workload.device == torch.device("cpu")
    assert workload.num_nodes == NODES
    logits = nn.functional.one_hot(data.y, CLASSES).float()
    assert workload.score(logits) == 1.0
    assert workload.score(-logits) == 0.0


def test_weights_that_the_model_does_not_take(data):
    data.edge_weight = torch.rand(data.edge_index.size(1))
    assert Workload.of(GraphSAGE(FEATURES, 16, CLASSES), data).edge_weight is None


def test_a_model_elsewhere_is_copied(model, data):
    workload = Workload.of(model, data, device="cpu")
    assert workload.model is model
    if torch.cuda.is_available():
        moved = Workload.of(model, data, device="cuda")
        assert moved.model is not model
        assert moved.device.type == "cuda"
        assert next(model.parameters()).device.type == "cpu"


def test_area_under_the_curve(data):
    data.y = data.y.clamp(max=1)
    workload = Workload.of(GCN(FEATURES, 16, 2, precision="bin"), data, metric="roc_auc")
    logits = nn.functional.one_hot(data.y, 2).float()
    assert workload.score(logits) == 1.0
    with pytest.raises(ValueError, match="roc_auc needs a model of 2 classes, got 4"):
        Workload.of(GCN(FEATURES, 16, 4, precision="bin"), data, metric="roc_auc")
    data.y = torch.zeros_like(data.y)
    with pytest.raises(ValueError, match="val_mask holds a single class"):
        Workload.of(GCN(FEATURES, 16, 2, precision="bin"), data, metric="roc_auc")


def changed(data, **entries):
    data = copy.copy(data)
    for name, value in entries.items():
        data[name] = value
    return data


CASES = {
    "no validation mask": (lambda d: {"val_mask": None}, "val_mask missing, on which"),
    "empty mask": (lambda d: {"val_mask": torch.zeros(NODES, dtype=torch.bool)}, "is empty"),
    "several splits": (
        lambda d: {"val_mask": torch.ones(NODES, 10, dtype=torch.bool)},
        r"val_mask must be bool \[90\], got torch.bool \[90, 10\]; of several splits choose one",
    ),
    "indices": (lambda d: {"val_mask": torch.arange(5)}, r"val_mask must be bool \[90\], got"),
    "a list": (lambda d: {"train_mask": [1, 2]}, r"train_mask must be bool \[90\], got \[1, 2\]"),
    "no features": (lambda d: {"x": None}, "data: x missing"),
    "no graph": (lambda d: {"edge_index": None}, "data: edge_index missing"),
    "no labels": (lambda d: {"y": None}, "data: y missing"),
    "counts": (lambda d: {"x": d.x.long()}, "must be a float matrix .* got torch.int64"),
    "no nodes": (lambda d: {"x": d.x[:0]}, r"with a node at least, got torch.float32 \[0, 70\]"),
    "NaN": (lambda d: {"x": d.x / 0 * 0}, "x must be finite, found NaN or infinity"),
    "float labels": (lambda d: {"y": d.y.float()}, "y must be int64"),
    "unlabelled": (lambda d: {"y": d.y * 0 - 1}, "holds nodes without a label"),
    "other width": (lambda d: {"x": d.x[:, 1:]}, "x must have 70 features .* got 69"),
    "more classes": (lambda d: {"y": d.y + 1}, "below the 4 classes of the model, got 4"),
}


@pytest.mark.parametrize("name", CASES)
def test_wrong_data(name, model, data):
    make, message = CASES[name]
    with pytest.raises(ValueError, match=message) as caught:
        Workload.of(model, changed(data, **make(data)))
    assert str(caught.value).startswith("tune: ")


def test_nothing_to_tune(data):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GATConv(FEATURES, CLASSES)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    for model in (Attention(), nn.Linear(FEATURES, CLASSES)):
        with pytest.raises(ValueError, match=r"nothing to tune, .* has no GCNConv"):
            Workload.of(model, data)
    with pytest.raises(TypeError, match=r"must be a torch.nn.Module, got int"):
        Workload.of(3, data)
    with pytest.raises(ValueError, match=r"metric must be one of .* got 'f1'"):
        Workload.of(Attention(), data, metric="f1")


def test_a_model_that_cannot_be_frozen(data):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(FEATURES, CLASSES)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index) if x.sum() > 0 else x

    with pytest.raises(ValueError, match="cannot be traced"):
        Workload.of(Odd(), data)
