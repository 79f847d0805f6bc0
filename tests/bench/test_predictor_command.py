"""scripts/train_predictor.py: recording what is missing, merging, structures, and errors."""

import json

import pytest

import train_predictor as predictor_command
from bench.tasks import synthetic_task
from bench.tuner import recorder
from bench.tuner.recording import Recording
from bitgnn.data import DataError
from train_predictor import main as train_predictor_main


def load(key, device="cpu", root=None, structures=None):
    if key == "pubmed":
        raise DataError("no files")
    return synthetic_task(60, 150, 40)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(recorder, "load_graph", load)
    monkeypatch.setattr(predictor_command, "load_graph", load)


def command(*arguments):
    return train_predictor_main([str(argument) for argument in arguments])


def test_records_what_is_missing_and_names_what_cannot_be_had(small, tmp_path, capsys):
    path = tmp_path / "tune_cpu.json"
    options = ("--output", path, "--plans", 2, "--seconds", 0)
    assert command("record", "cpu", *options, "--graphs", "cora", "--models", "GCN") == 0
    first = json.loads(path.read_text())["graphs"]["cora/GCN"]
    assert first["plans"][0]["plan"]["letters"] == {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}
    models = ("--models", "GCN", "GraphSAGE", "GraphSAINT")
    assert command("record", "cpu", *options, "--graphs", "cora", "pubmed", *models) == 0
    assert "pubmed: left out, no files" in capsys.readouterr().out
    held = Recording(path)
    assert list(held.graphs) == ["cora/GCN", "cora/GraphSAGE", "cora/GraphSAINT"]
    assert held.graphs["cora/GCN"] == first
    assert held.graphs["cora/GraphSAGE"]["name"] == "synthetic (60 nodes), GraphSAGE"


def test_merges(small, tmp_path, capsys):
    parts = [tmp_path / f"{key}.json" for key in ("cora", "photo")]
    for path in parts:
        command("record", "cpu", "--output", path, "--plans", 1, "--seconds", 0,
                "--graphs", path.stem, "--models", "GCN")  # fmt: skip
    assert command("merge", tmp_path / "all.json", *parts) == 0
    assert list(Recording(tmp_path / "all.json").graphs) == ["cora/GCN", "photo/GCN"]
    assert command("merge", tmp_path / "all.json", tmp_path / "none.json") == 1
    assert "error: no recording at" in capsys.readouterr().out


def test_writes_structures(small, tmp_path, capsys):
    path = tmp_path / "graphs.npz"
    assert command("structures", path, "--graphs", "cs") == 0
    assert path.stat().st_size > 0
    assert command("structures", path, "--graphs", "pubmed") == 1
    assert "error: no files" in capsys.readouterr().out


def test_a_foreign_recording_is_one_error(small, tmp_path, capsys):
    path = tmp_path / "tune_cpu.json"
    path.write_text("{}")
    assert command("record", "cpu", "--output", path, "--graphs", "cora") == 1
    assert "error: " in capsys.readouterr().out
    assert path.read_text() == "{}"
