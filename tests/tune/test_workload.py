"""Workloads: what is taken, moved and refused."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv

from bitgnn.models import GCN, GraphSAGE
from bitgnn.nn import GCNConv
from bitgnn.tune.workload import Score, Workload

NODES, FEATURES, CLASSES = 90, 70, 4


@pytest.fixture
def model():
    return GCN(FEATURES, 16, CLASSES, precision="bin")


def test_what_it_holds(model, data):
    data.edge_weight = torch.rand(data.edge_index.size(1))
    data.test_mask = data.train_mask
    workload = Workload.of(model, data, device="cpu")
    assert workload.model is model
    for name in ("x", "edge_weight", "test_mask"):
        assert getattr(workload, name).equal(data[name])
    assert (workload.device, workload.num_nodes) == (torch.device("cpu"), NODES)
    # Weights are for models that take them.
    assert Workload.of(GraphSAGE(FEATURES, 16, CLASSES), data).edge_weight is None
    logits = nn.functional.one_hot(data.y, CLASSES).float()
    assert (workload.score(logits), workload.score(-logits)) == (1.0, 0.0)
    logits[data.test_mask] *= -1
    assert workload.scores(logits) == Score(1.0, 0.0)
    data.test_mask = torch.zeros_like(data.val_mask)
    assert Workload.of(model, data).scores(logits).test is None


def test_a_model_elsewhere_is_copied(model, data):
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
    for entry, value in make(data).items():
        data[entry] = value
    with pytest.raises(ValueError, match=message) as caught:
        Workload.of(model, data)
    assert str(caught.value).startswith("tune: ")


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GATConv(FEATURES, CLASSES)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(FEATURES, CLASSES)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("model", "metric", "error", "message"),
    [
        (Attention(), "accuracy", ValueError, r"nothing to tune, .* has no GCNConv"),
        (nn.Linear(FEATURES, CLASSES), "accuracy", ValueError, "nothing to tune"),
        (3, "accuracy", TypeError, r"must be a torch.nn.Module, got int"),
        (Attention(), "f1", ValueError, r"metric must be one of .* got 'f1'"),
        (Odd(), "accuracy", ValueError, "cannot be traced"),
    ],
)
def test_models_that_cannot_be_tuned(model, metric, error, message, data):
    with pytest.raises(error, match=message):
        Workload.of(model, data, metric=metric)
