"""`bitgnn tune` as a process: what is recorded of it, and its table."""

import json

import pytest

import bench_tune_runs as tune_runs
from bench.tables.timings import runs_table
from bench_tune_runs import Run
from bench_tune_runs import main as tune_runs_main

SMALL = (
    "--hidden", "8", "--epochs", "1", "--pin", "convs.0=FBB+BBB", "--pin", "convs.1=BBF+F*F",
    "--constraint", "accuracy drop <= 90%",
)  # fmt: skip


def test_records_calls_and_keeps_those_that_are_not_made_anew(monkeypatch, tmp_path, capsys):
    run = Run("digits", (*SMALL, "--budget", "60s"), goal=45.0, exhaustive=True)
    monkeypatch.setattr(tune_runs, "RUNS", {"kept": run, "one": run})
    monkeypatch.setattr(tune_runs, "EXHAUSTIVE_SECONDS", 0.0)
    path = tmp_path / "tuner_runs.json"
    options = ["--output", str(path), "--threads", "1", "--runs"]
    assert tune_runs_main([*options, "one"]) == 0
    (one,) = json.loads(path.read_text())["results"]
    assert one["command"] == run.command
    assert one["goal"] == 60.0
    assert one["seconds"] > 0
    assert one["environment"]["threads"] == 1
    assert len(one["baselines"]) == 2
    every = one["exhaustive"]
    assert every["plans"] > 1
    assert every["ratio"] == pytest.approx(every["chosen"] / every["best"])
    again = {**one, "key": "kept", "exhaustive": None}
    monkeypatch.setattr(tune_runs, "measure_run", lambda *rest: again)
    assert tune_runs_main([*options, "kept"]) == 0
    record = json.loads(path.read_text())
    assert record["results"] == [again, one]
    table = runs_table(record)
    assert table in capsys.readouterr().out
    assert "(≤ 60 s)" in table


def test_a_call_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(tune_runs, "PROGRAM", "raise SystemExit('no such objective')")
    with pytest.raises(RuntimeError, match="bitgnn tune --dataset digits: no such objective"):
        tune_runs.measure_run(Run("digits"), 1, None)
