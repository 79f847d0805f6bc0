"""`bitgnn tune` as a process: what is recorded of it, and its table."""

import json

import pytest

import bench_tune_runs as tune_runs
from bench.tables.tuner import runs_table
from bench_tune_runs import Run, tune_runs_main

SMALL = (
    "--epochs", "1", "--pin", "convs.0=FBB+BBB", "--pin", "convs.1=BBF+F*F",
    "--constraint", "accuracy drop <= 90%",
)  # fmt: skip


@pytest.fixture
def runs(monkeypatch):
    found = {
        "one": Run("digits", SMALL, goal=45.0, exhaustive=True),
        "two": Run("digits", (*SMALL, "--budget", "60s")),
        "missed": Run("digits", (*SMALL, "--constraint", "memory <= 1 B")),
        "wrong": Run("digits", ("--objective", "speed")),
    }
    monkeypatch.setattr(tune_runs, "RUNS", found)
    monkeypatch.setattr(tune_runs, "EXHAUSTIVE_SECONDS", 0.0)
    return found


def test_what_a_call_says():
    run = Run("Cora", ("--model", "graphsage", "--budget", "2 min"))
    assert run.command == "bitgnn tune --dataset Cora --model graphsage --budget 2 min"
    assert run.budget == 120.0
    assert Run("Cora").budget is None


def test_records_calls_and_keeps_those_that_are_not_made_anew(runs, tmp_path, capsys):
    path = tmp_path / "tuner_runs.json"
    options = ["--output", str(path), "--threads", "1"]
    assert tune_runs_main([*options, "--runs", "one"]) == 0
    first = json.loads(path.read_text())["results"]
    assert [result["key"] for result in first] == ["one"]
    assert tune_runs_main([*options, "--runs", "two"]) == 0
    record = json.loads(path.read_text())
    one, two = record["results"]
    assert one == first[0]
    assert one["command"] == runs["one"].command
    assert one["goal"] == 45.0
    assert two["goal"] == 60.0
    assert one["seconds"] > 0
    assert one["environment"]["threads"] == 1
    assert len(one["baselines"]) == 2
    every = one["exhaustive"]
    assert every["plans"] > 1
    assert every["ratio"] == pytest.approx(every["chosen"] / every["best"])
    assert two["exhaustive"] is None
    table = runs_table(record)
    assert table in capsys.readouterr().out
    assert "(≤ 45 s)" in table
    assert "(≤ 60 s)" in table


def test_a_call_that_fails_says_why(runs):
    with pytest.raises(RuntimeError, match="objective must be one of"):
        tune_runs.measure_run(runs["wrong"], 1, None)
    with pytest.raises(RuntimeError, match="No plan is recommended: memory <= 1 B cannot be met"):
        tune_runs.measure_run(runs["missed"], 1, None)
