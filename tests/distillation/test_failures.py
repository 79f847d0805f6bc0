"""distill() stopped, killed, or asked for what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import HeteroData
from toy_problems import CLASSES, FEATURES, NODES, gcn, planted

import bitgnn
from bitgnn._files import FolderInUseError, locked
from bitgnn.distillation import DistillError, fitting
from bitgnn.train.checkpoint import CheckpointError


class Killed(BaseException):
    """What ends a process at some line."""


def stop_at(monkeypatch: pytest.MonkeyPatch, epochs: int, error: BaseException) -> None:
    """Raise in the student's epoch of this number."""
    real = fitting.step_epoch

    def step(session: Any, *rest: Any) -> None:
        if session.identity["part"] == "student" and session.epoch == epochs:
            raise error
        real(session, *rest)

    monkeypatch.setattr(fitting, "step_epoch", step)


@pytest.mark.parametrize("error", [Killed(), KeyboardInterrupt()])
def test_a_stopped_call_goes_on(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = planted()
    expected = bitgnn.distill(gcn(), data, epochs=12)
    with monkeypatch.context() as patched:
        stop_at(patched, 5, error)
        if isinstance(error, KeyboardInterrupt):
            with pytest.warns(UserWarning, match="Ctrl-C after 5 of 12 epochs"):
                early = bitgnn.distill(gcn(), data, epochs=12, log=tmp_path)
            assert early.interrupted
            assert len(early.history) == 5
        else:
            with pytest.raises(Killed):
                bitgnn.distill(gcn(), data, epochs=12, log=tmp_path)
    found = bitgnn.distill(gcn(), data, epochs=12, log=tmp_path)
    columns = [name for name in found.history[0] if name != "seconds"]
    again = bitgnn.distill(gcn(), data, epochs=12, log=tmp_path)
    for other in (expected, again):
        assert [[row[n] for n in columns] for row in found.history] == [
            [row[n] for n in columns] for row in other.history
        ]
        state = other.model.state_dict()
        assert all(torch.equal(v, state[n]) for n, v in found.model.state_dict().items())
    assert (tmp_path / "student.csv").read_text().count("\n") == 13


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    bitgnn.distill(gcn(), planted(), epochs=2, log=tmp_path)
    with pytest.raises(CheckpointError, match="another recipe"):
        bitgnn.distill(gcn(), planted(x=torch.rand(NODES, FEATURES)), epochs=2, log=tmp_path)
    with pytest.raises(CheckpointError, match="epochs"):
        bitgnn.distill(gcn(), planted(), epochs=3, log=tmp_path)
    with locked(tmp_path), pytest.raises(FolderInUseError):
        bitgnn.distill(gcn(), planted(), epochs=2, log=tmp_path)


def test_a_budget_ends_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1, 10_000))
    monkeypatch.setattr(fitting.time, "perf_counter", lambda: float(next(clock)))
    result = bitgnn.distill(gcn(), planted(), epochs=1000, budget=60)
    assert 5 < len(result.history) < 60
    assert result.history[-1]["learning_rate"] < 0.2 * result.history[0]["learning_rate"]


def y_of(*shape: int) -> torch.Tensor:
    """Labels of some shape."""
    return torch.zeros(*shape, dtype=torch.int64)


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
    ],
)
def test_data_that_cannot_be_learnt(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DistillError, match=message):
        bitgnn.distill(gcn(), planted(**changes), epochs=2)


class Convolved(nn.Module):
    """A layer that has no binary form."""

    def __init__(self) -> None:
        super().__init__()
        self.gat = pyg.GATConv(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Scores of nodes."""
        return self.gat(x, edge_index)


class Pair(nn.Module):
    """Gives more than scores."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> Any:
        """Scores and features."""
        return self.conv(x, edge_index), x


def test_models_that_cannot_be_taught() -> None:
    data = planted()
    with pytest.raises(DistillError, match=r"no GCNConv, SAGEConv or GraphConv.*GATConv \(gat\)"):
        bitgnn.distill(Convolved(), data, epochs=2)
    with pytest.raises(DistillError, match="one tensor of scores, got tuple"):
        bitgnn.distill(Pair(), data, epochs=2)
    with pytest.raises(TypeError, match="got str"):
        bitgnn.distill("model", data)
    with pytest.raises(DistillError, match="must have parameters"):
        bitgnn.distill(nn.ReLU(), data)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epochs": 0}, ValueError, "epochs must be a positive integer"),
        ({"budget": -1.0}, ValueError, "budget must be positive"),
        ({"widen": 0.5}, ValueError, "widen must be at least 1"),
        ({"widen": "2"}, TypeError, "widen must be a number"),
        ({"recipe": {"sharpen": 0}}, DistillError, "recipe: sharpen: .* greater than 0, got 0"),
        ({"recipe": {"sharp": 2}}, DistillError, "recipe: sharp: Extra"),
        ({"precision": "BFB"}, DistillError, "precision"),
        ({"validation": torch.tensor([NODES])}, DistillError, f"0 to {NODES - 1}"),
        ({"validation": 1.5}, DistillError, "too few"),
    ],
)
def test_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        bitgnn.distill(gcn(), planted(), **{"epochs": 2, **options})


def test_data_of_another_kind() -> None:
    with pytest.raises(DistillError, match="homogeneous, got HeteroData"):
        bitgnn.distill(gcn(), HeteroData())
    with pytest.raises(DistillError, match="got an empty list"):
        bitgnn.distill(gcn(), [])
    with pytest.raises(DistillError, match="pass batches as loader"):
        bitgnn.distill(gcn(), iter([planted()]))
