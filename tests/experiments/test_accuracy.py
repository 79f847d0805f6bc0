"""Accuracy tables: means, goals, proof, the command that trains what is missing of one."""

import json
from pathlib import Path

import pytest
from tiny_experiment import TINY

from bitgnn.measure.report import write_json
from bitgnn.train import load_config
from bitgnn.train.store import Run
from bitgnn.train.workers import Finished
from experiments.accuracy import command
from experiments.accuracy.named import named_experiment
from experiments.accuracy.record import PAPER, Table, accuracy_record

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "tiny.yaml").write_text(TINY)
    return tmp_path


@pytest.mark.parametrize("table", command.TABLES.values(), ids=command.TABLES)
def test_tables_to_reproduce_have_their_configurations(table):
    for name in table.configs:
        assert named_experiment(CONFIGS, name).name == name


def finished(form, seed, score, difference=None, mismatch=None):
    run = Run(form, seed, score, score, 1.0, 5, 10, 2.0 if form == "fp32" else 1.0, "machine")
    return Finished(run, difference, mismatch)


@pytest.fixture
def record(folder):
    config = load_config(folder / "configs" / "tiny.yaml")
    config = config.model_copy(
        update={"dataset": config.dataset.model_copy(update={"name": "Cora"})}
    )
    runs = [
        finished("fp32", 0, 0.80), finished("fp32", 1, 0.82),
        finished("full", 0, 0.81, 1e-6), finished("full", 1, 0.81, 2e-6),
        finished("bin", 0, 0.80, 0.0), finished("bin", 1, 0.81, mismatch="seed 1 differs"),
    ]  # fmt: skip
    table = Table("test", ("tiny",), 2, mean_gap=0.4, close_gap=0.5)
    return accuracy_record(table, [(config, {"nodes": 5}, runs)])


def test_record_has_means_spread_cost_and_proof(record, tmp_path):
    forms = record["graphs"]["Cora"]["forms"]
    assert forms["fp32"]["score_mean_percent"] == pytest.approx(81.0)
    assert forms["fp32"]["score_std_points"] == pytest.approx(2**0.5)
    assert forms["bin"]["needs"] == ["fp32", "full"]
    assert forms["bin"]["seconds_with_needs"] == pytest.approx(4.0)
    assert forms["bin"]["seconds_ratio"] == pytest.approx(2.0)
    assert forms["bin"]["epochs_ratio"] == pytest.approx(3.0)
    assert forms["fp32"]["frozen"] is None
    assert forms["full"]["frozen"]["equal_on_every_node"] == 2
    assert forms["full"]["frozen"]["largest_logit_difference"] == 2e-6
    assert forms["bin"]["frozen"]["mismatches"] == ["seed 1 differs"]
    write_json(tmp_path / "a.json", record)
    assert json.loads((tmp_path / "a.json").read_text()) == record


def test_goals_are_judged(record):
    goals = {goal["goal"]: goal["met"] for goal in record["graphs"]["Cora"]["goals"]}
    assert PAPER["Cora"].bin == 81.2
    assert goals == {
        "full: the paper's mean less 0.3": True,
        "full: at most 0.2 behind fp32": True,
        "bin: the paper's mean less 0.3": False,
        "bin: at most 0.2 behind fp32": False,
        "bin (best form on bits): at most 0.5 behind fp32": True,
    }
    assert [goal["met"] for goal in record["goals"]] == [False]


def test_reproduce_writes_the_record(folder, monkeypatch, capsys):
    monkeypatch.setitem(command.TABLES, "3", Table("table3", ("tiny",), 2))
    runs = [[finished("fp32", 0, 0.8), finished("full", 0, 0.8, 0.0), finished("bin", 0, 0.7, 0.0)]]
    monkeypatch.setattr(command, "train_side_by_side", lambda *_, **__: runs)
    arguments = ["--output", str(folder / "runs"), "--workers", "2", "--device", "cpu"]
    assert command.main(arguments, folder) == 0
    results = folder / "runs"
    record = json.loads((results / "accuracy_table3.json").read_text())
    assert record["graphs"]["digits"]["graph"]["nodes"] == 1797
    assert record["environment"]["python"]
    runs[0][2] = finished("bin", 0, 0.7, mismatch="bin differs")
    assert command.main(arguments, folder) == 1
    assert "reproduce: bin differs" in capsys.readouterr().err
