"""distill() stopped, killed, or asked for what cannot be."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data, HeteroData
from toy_problems import CLASSES, FEATURES, NODES, Pooled, gcn, planted

import bitgnn
from bitgnn._files import FolderInUseError, locked
from bitgnn.distillation import DistillError, fitting
from bitgnn.distillation.checkpoint import CheckpointError


class Killed(BaseException):
    """What ends a process at some line."""


def stop_at(monkeypatch, epochs, error):
    """Raise in the student's epoch of this number."""
    real = fitting.step_epoch

    def step(session, *rest):
        if session.identity["part"] == "student" and session.epoch == epochs:
            raise error
        real(session, *rest)

    monkeypatch.setattr(fitting, "step_epoch", step)


def history(result):
    return [{**row, "seconds": 0} for row in result.history]


@pytest.mark.parametrize("error", [Killed(), KeyboardInterrupt()])
def test_a_stopped_call_goes_on(error, tmp_path, monkeypatch):
    def distilled(log=tmp_path):
        return bitgnn.distill(gcn(), planted(), epochs=12, log=log)

    with monkeypatch.context() as patched:
        stop_at(patched, 5, error)
        if isinstance(error, KeyboardInterrupt):
            with pytest.warns(UserWarning, match="Ctrl-C after 5 of 12 epochs"):
                early = distilled()
            assert early.interrupted
            assert len(early.history) == 5
        else:
            with pytest.raises(Killed):
                distilled()
    found = distilled()
    for other in (distilled(log=None), distilled()):
        assert history(found) == history(other)
        state = other.model.state_dict()
        assert all(torch.equal(v, state[n]) for n, v in found.model.state_dict().items())
    assert (tmp_path / "student.csv").read_text().count("\n") == 13


def test_a_folder_of_something_else(tmp_path):
    bitgnn.distill(gcn(), planted(), epochs=2, log=tmp_path)
    with pytest.raises(CheckpointError, match="another recipe"):
        bitgnn.distill(gcn(), planted(x=torch.rand(NODES, FEATURES)), epochs=2, log=tmp_path)
    with pytest.raises(CheckpointError, match="epochs"):
        bitgnn.distill(gcn(), planted(), epochs=3, log=tmp_path)
    with locked(tmp_path), pytest.raises(FolderInUseError):
        bitgnn.distill(gcn(), planted(), epochs=2, log=tmp_path)


def test_a_budget_ends_the_training(monkeypatch):
    clock = iter(range(1, 10_000))
    monkeypatch.setattr(fitting.time, "perf_counter", lambda: float(next(clock)))
    result = bitgnn.distill(gcn(), planted(), epochs=1000, budget=60)
    assert 5 < len(result.history) < 60
    assert result.history[-1]["learning_rate"] < 0.2 * result.history[0]["learning_rate"]


def y_of(*shape):
    """Labels of some shape."""
    return torch.zeros(*shape, dtype=torch.int64)


def late(label):
    """Labels of which the validation nodes' are another."""
    data = planted()
    return torch.where(data.val_mask, label, data.y)


NAN = torch.full((NODES, FEATURES), float("nan"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_mask": None}, "data.train_mask is missing"),
        ({"train_mask": torch.zeros(NODES, dtype=torch.bool)}, "train_mask is empty"),
        ({"train_mask": torch.ones(NODES, 10, dtype=torch.bool)}, "several splits"),
        ({"train_mask": torch.ones(3, dtype=torch.bool)}, rf"bool \[{NODES}\]"),
        ({"y": None}, rf"a row for each of {NODES} nodes, got nothing"),
        ({"y": y_of(7)}, rf"a row for each of {NODES} nodes, got \[7\]"),
        ({"y": y_of(NODES)}, "two classes"),
        ({"y": y_of(NODES) + CLASSES}, f"classes 0 to {CLASSES - 1}"),
        ({"x": None}, "x is missing"),
        ({"x": NAN}, "x must be finite"),
        ({"val_mask": torch.ones(NODES, dtype=torch.bool)}, "no training node"),
        ({"edge_index": None}, "edge_index"),
        ({"y": torch.full((NODES, CLASSES), float("nan"))}, "found NaN alone"),
        ({"y": late(-1)}, r"validation holds rows without a label \(y < 0\)"),
        ({"y": late(CLASSES)}, f"validation: labels must be classes 0 to {CLASSES - 1}"),
        ({"x": NAN.numpy()}, r"data.x must be a tensor \[N, F\], got ndarray"),
        ({"x": torch.ones(NODES, FEATURES - 1)}, "model does not take data, .*shapes"),
        ({"x": torch.ones(NODES, FEATURES).double()}, "model does not take data, .*dtype"),
        ({"edge_index": planted().edge_index + 1}, f"edge_index must be nodes 0 to {NODES - 1}"),
        ({"edge_index": torch.rand(2, 9)}, r"edge_index must be int64 \[2, E\], got torch.float32"),
    ],
)
def test_data_that_cannot_be_learnt(changes, message):
    with pytest.raises(DistillError, match=message):
        bitgnn.distill(gcn(), planted(**changes), epochs=2)


class One(nn.Module):
    """A single layer, whose result may come with something else."""

    def __init__(self, layer, *more):
        super().__init__()
        self.layer, self.more = layer, more

    def forward(self, x, edge_index):
        found = self.layer(x, edge_index)
        return (found, *self.more) if self.more else found


def broken():
    model = gcn()
    nn.init.constant_(model.convs[1].bias, float("nan"))
    return model


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (
            One(pyg.ARMAConv(FEATURES, CLASSES)),
            DistillError,
            r"no GCNConv, SAGEConv or GraphConv.*ARMAConv \(layer\)",
        ),
        (One(pyg.GCNConv(FEATURES, CLASSES), 3), DistillError, "one tensor of scores, got tuple"),
        ("model", TypeError, "got str"),
        (nn.ReLU(), DistillError, "must have parameters"),
        (gcn().to("meta"), DistillError, "on one device with its data, got meta"),
        (broken(), DistillError, r"finite weights, found NaN or infinity in convs\.1"),
    ],
)
def test_models_that_cannot_be_taught(model, error, message):
    with pytest.raises(error, match=message):
        bitgnn.distill(model, planted(), epochs=2)


def graphs(**changes):
    """Twelve graphs of two classes, the last one changed."""
    found = [
        Data(x=torch.rand(5, 4), edge_index=torch.randint(5, (2, 9)), y=i % 2) for i in range(12)
    ]
    for name, value in changes.items():
        found[-1][name] = value
    return found


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (graphs(y=None), {}, "y in every graph"),
        (graphs(y=torch.zeros(2)), {}, "as many labels in every graph, got 1 and 2"),
        (graphs(x=torch.full((5, 4), float("nan"))), {}, r"data\[11\].x must be finite"),
        (graphs(x=torch.rand(5, 3)), {}, r"data\[11\].x must be \[N, 4\] .*, got \[5, 3\]"),
        ([planted()], {}, r"data must be the graph itself, data\[0\]"),
        ([3, 4], {}, r"data\[0\] must be a graph, got int"),
        ("Cora", {}, "data must be a Data object, .* got str"),
        (HeteroData(), {}, "homogeneous, got HeteroData"),
        ([], {}, "got an empty list"),
        (iter([planted()]), {}, "pass batches as loader"),
        (graphs(), {"validation": []}, "validation must hold a graph at least"),
        (graphs(), {"validation": [3]}, r"validation\[0\] must be a graph, got int"),
        (graphs(), {"validation": graphs()[0]}, "must be a loader or a dataset, got Data"),
        (graphs(), {"validation": graphs(y=7)}, "validation: labels must be classes 0 to 1"),
        (graphs(), {"validation": graphs(), "loader": []}, "loader must give a batch at least"),
        (graphs(), {"validation": graphs(), "loader": [3]}, "must give batches of graphs, got int"),
    ],
)
def test_graphs_that_cannot_be_learnt(data, options, message):
    with pytest.raises(DistillError, match=message):
        bitgnn.distill(Pooled(4, 8, 2), data, epochs=1, **options)


def test_links_that_cannot_be_learnt():
    model = pyg.GAE(pyg.GCN(FEATURES, 8, 2, 4))
    pairs = {"x": planted().x, "edge_label_index": torch.tensor([[0, 1], [2, 3]])}
    with pytest.raises(DistillError, match=r"data\.edge_index is missing"):
        bitgnn.distill(model, Data(**pairs), epochs=1)
    data = Data(**pairs, edge_index=planted().edge_index)
    with pytest.raises(DistillError, match=r"validation must be a graph .* got str"):
        bitgnn.distill(model, data, epochs=1, validation="val")


def test_labels_of_other_integers_are_classes():
    data = planted()
    expected = bitgnn.distill(gcn(), data, epochs=2)
    for y in (data.y.int(), data.y.byte(), data.y[:, None]):
        assert bitgnn.distill(gcn(), planted(y=y), epochs=2).scores == expected.scores


def test_a_teacher_without_gradients_has_students_that_learn():
    model = gcn()
    expected = bitgnn.distill(model, planted(), epochs=2, trained=True)
    found = bitgnn.distill(model.requires_grad_(False), planted(), epochs=2, trained=True)
    assert found.scores == expected.scores
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epochs": 0}, ValueError, "epochs must be a positive integer"),
        ({"budget": -1.0}, ValueError, "budget must be positive"),
        ({"widen": 0.5}, ValueError, "widen must be at least 1"),
        ({"widen": "2"}, TypeError, "widen must be a number"),
        ({"epochs": True}, ValueError, "epochs must be a positive integer"),
        ({"budget": "60"}, TypeError, "budget must be seconds or None, got str"),
        ({"budget": 1e-9}, DistillError, "budget must leave time for the student, got 1e-09"),
        ({"seed": "0"}, TypeError, "seed must be an int, got str"),
        ({"seed": -1}, ValueError, "seed must be 0 to 4294967295, got -1"),
        ({"trained": "yes"}, TypeError, "trained must be a bool or None, got str"),
        ({"recipe": ["sharpen"]}, TypeError, "recipe must be a mapping"),
        ({"log": 3}, TypeError, "log must be a path or None, got int"),
        ({"log": __file__}, DistillError, "log must be a folder"),
        ({"loader": 3}, DistillError, "loader must be a loader or a dataset, got int"),
        ({"loader": [3]}, DistillError, "loader must give parts of the graph, with x, got int"),
        ({"loader": []}, DistillError, "loader must give a batch at least"),
        ({"loader": iter(())}, DistillError, "loader must give its batches anew"),
        ({"precision": bitgnn.BWTAConfig()}, DistillError, "must be a GraphConfig .*, got BWTA"),
        ({"recipe": {"sharpen": 0}}, DistillError, "recipe: sharpen: .* greater than 0, got 0"),
        ({"recipe": {"sharp": 2}}, DistillError, "recipe: sharp: Extra"),
        ({"precision": "BFB"}, DistillError, "precision"),
        ({"validation": torch.tensor([NODES])}, DistillError, f"0 to {NODES - 1}"),
        ({"validation": 1.5}, DistillError, "a share between 0 and 1, got 1.5"),
    ],
)
def test_arguments(options, error, message):
    with pytest.raises(error, match=message):
        bitgnn.distill(gcn(), planted(), **{"epochs": 2, **options})
