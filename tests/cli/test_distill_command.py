"""`bitgnn distill`: files on success, goes on where it was stopped, one line on failure."""

import json
import sys

import numpy as np
import pytest
import safetensors.torch
from torch_geometric.nn import GCN
from typer.main import get_command

import bitgnn
from bitgnn._files import alone_in
from bitgnn.cli import app
from bitgnn.distillation import fitting
from bitgnn.distillation.command import DistillCommand

NODES, FEATURES, CLASSES = 60, 12, 3
EPOCHS = 12
QUICK = ["--epochs", EPOCHS, "--threads", "1", "--device", "cpu"]
OWN = """
import torch
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.nn import GraphConv


class Net(torch.nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.first = GraphConv(in_channels, 8)
        self.second = GraphConv(8, out_channels)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Loops(InMemoryDataset):
    def __init__(self, root):
        super().__init__(None)
        y = torch.arange(30) % 2
        x = torch.randn(30, 8, generator=torch.Generator().manual_seed(0)) + 2 * y[:, None]
        graph = Data(x=x, y=y, edge_index=torch.arange(30).repeat(2, 1))
        self.data, self.slices = self.collate([graph])


def wrong(in_channels, heads):
    raise AssertionError


made = Net(12, 3)
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A file with features that tell the classes, and edges within each."""
    generator = np.random.default_rng(0)
    y = np.arange(NODES) % CLASSES
    x = np.tile(2 * np.eye(CLASSES, dtype=np.float32)[y], FEATURES // CLASSES)
    x += generator.normal(0, 0.3, x.shape).astype(np.float32)
    edges = np.stack([np.arange(NODES), (np.arange(NODES) + CLASSES) % NODES], axis=1)
    file = tmp_path_factory.mktemp("graph") / "mine.npz"
    np.savez(file, x=x, y=y, edges=edges)
    return file


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module of the user's in the working directory."""
    (tmp_path / "own_net.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "own_net"
    sys.modules.pop("own_net", None)


@pytest.fixture
def distill(graph, run):
    """Runs the command on that graph, quickly."""

    def invoke(folder, *more, invoke=run, **options):
        arguments = ["distill", "--data", graph, "--output", folder, "--hidden", "8", *QUICK]
        return invoke(*arguments, *more, **options)

    return invoke


def test_writes_model_history_picture_and_report(graph, distill, tmp_path):
    folder = tmp_path / "out"
    result = distill(folder, "--widen", "2")
    assert "mine: 60 nodes, 120 edges, 12 features" in result.stdout
    assert "bitgnn: warning: " in result.stderr
    assert "has no masks; 60, 20 and 20 per cent" in result.stderr
    report = json.loads((folder / "distill.json").read_text())
    assert report["metric"] == "accuracy"
    assert report["epochs"] == report["teacher_epochs"] == EPOCHS
    scores = report["scores"]
    gap = 100 * (scores["teacher"]["test"] - scores["binary"]["test"])
    assert report["gap_points"] == pytest.approx(gap)
    assert set(report["costs"]) == {"teacher", "frozen", "frozen, same width"}
    assert f"gap {gap:.2f}" in result.stdout
    assert len((folder / "distill.csv").read_text().splitlines()) == 1 + EPOCHS
    assert (folder / "distill.png").read_bytes().startswith(b"\x89PNG")
    data = bitgnn.data.read_graph(graph)
    right = bitgnn.load(folder / "model")(data.x, data.edge_index).argmax(1) == data.y
    share = float(right[data.test_mask].double().mean())
    assert share == pytest.approx(scores["binary"]["test"])


def test_weights_of_a_trained_model(distill, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    distill(first, "--epochs", "40")
    weights = first / "teacher.safetensors"
    GCN(FEATURES, 8, 2, CLASSES).load_state_dict(safetensors.torch.load_file(weights))
    distill(second, "--state", weights)
    reports = [json.loads((f / "distill.json").read_text()) for f in (first, second)]
    assert reports[0]["scores"]["teacher"] == reports[1]["scores"]["teacher"]
    assert reports[1]["teacher_epochs"] == 0
    assert not (second / "teacher.safetensors").exists()


@pytest.mark.parametrize("stop", [3, EPOCHS + 3])
def test_goes_on_where_it_was_stopped(distill, tmp_path, monkeypatch, stop):
    """Ctrl-C in the teacher's training and in the student's."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    step, calls = fitting.step_epoch, []

    def counted(*arguments):
        calls.append(arguments)
        if len(calls) == stop:
            raise KeyboardInterrupt
        step(*arguments)

    monkeypatch.setattr(fitting, "step_epoch", counted)
    result = distill(stopped, status=130)
    assert f"checkpoints are kept in {stopped}, the same command goes on" in result.stderr
    assert "result is the best epoch" not in result.stderr
    assert not (stopped / "distill.json").exists()
    distill(stopped)
    # What no checkpoint holds yet is done again: epochs here are shorter than writing one.
    assert 2 * EPOCHS + 1 <= len(calls) < 2 * EPOCHS + 1 + stop
    monkeypatch.undo()
    distill(whole)
    scores = [json.loads((f / "distill.json").read_text())["scores"] for f in (whole, stopped)]
    assert scores[0] == scores[1]


def test_a_folder_of_another_distillation(distill, refused, tmp_path):
    distill(tmp_path)
    line = distill(tmp_path, "--seed", "1", invoke=refused)
    assert "holds another job's work (seed: 0 there, 1 here)" in line
    with alone_in(tmp_path):
        assert "another process writes to this folder" in distill(tmp_path, invoke=refused)


@pytest.mark.parametrize("name", ["graphconv", "GraphSAGE"])
def test_models_by_name(distill, tmp_path, name):
    distill(tmp_path / "out", "--model", name, "--layers", "3")


@pytest.mark.parametrize(("data", "model"), [("Loops", "Net"), (None, "made")])
def test_model_and_graph_by_import_path(own_module, run, graph, tmp_path, data, model):
    source = graph if data is None else f"{own_module}:{data}"
    run("distill", "--data", source, "--model", f"{own_module}:{model}", *QUICK)
    folder = f"{model}-{data or graph.stem}".lower()
    assert (tmp_path / "bitgnn-distill" / folder / "model" / "model.json").is_file()


def test_labels_of_several_columns(distill, graph, tmp_path):
    arrays = dict(np.load(graph))
    several = np.stack([arrays["y"] == 0, arrays["y"] > 0], axis=1)
    np.savez(tmp_path / "several.npz", **arrays | {"y": several})
    distill(tmp_path / "out", "--data", tmp_path / "several.npz")
    assert bitgnn.load(tmp_path / "out" / "model").out_channels == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--model", "mlp"], "model must be one of ['gcn', 'sage', 'graphconv', 'indgcn'"),
        (["--model", "own_net:wrong"], "takes no hidden_channels, leave --hidden out"),
        (["--model", "own_net:made"], "takes no hidden_channels, leave --hidden out"),
        (["--model", "own_net:None_there"], "own_net has no None_there"),
        (["--model", "no_such_module:Net"], "no_such_module cannot be imported"),
        (["--state", "own_net.py"], "own_net.py: is no file of safetensors"),
        (["--state", "none.safetensors"], "none.safetensors: cannot be read"),
        (["--precision", "ternary"], "precision must be"),
        (["--budget", "soon"], "budget must be a time such as '60s'"),
        (["--device", "tpu"], "device must be 'auto', 'cpu' or 'cuda'"),
        (["--data", "none.npz"], "none.npz: no such file"),
        (["--data", "Coro"], "name must be one of"),
    ],
)
@pytest.mark.usefixtures("own_module")
def test_mistyped_options_are_one_line(distill, refused, tmp_path, more, said):
    assert said in distill(tmp_path / "out", *more, invoke=refused)


def test_a_function_that_needs_more_is_named(own_module, graph, refused, tmp_path):
    arguments = ["distill", "--data", graph, "--model", f"{own_module}:wrong"]
    line = refused(*arguments, "--output", tmp_path / "out")
    assert "missing 1 required positional argument: 'heads'" in line
    assert not (tmp_path / "out").exists()


def test_defaults_are_those_of_the_command_line():
    options = {option.name: option for option in get_command(app).commands["distill"].params}
    command = DistillCommand("x")
    for field in ("model", "hidden", "layers"):
        assert options[field].default == getattr(command.model, field)
    for field in ("precision", "seed", "device", "widen", "epochs"):
        assert options[field].default == getattr(command, field)
