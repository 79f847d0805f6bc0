"""`bitgnn tune` as a process: what is recorded of it, and its table."""

import json

import pytest

import bench_tune_runs as tune_runs
from bench.tables.timings import runs_table
from bench_tune_runs import Run
from bench_tune_runs import main as tune_runs_main
from bitgnn.measure.timing import Clock

SMALL = (
    "--hidden", "8", "--epochs", "1", "--widen", "1",
    "--pin", "convs.0=FBB+BBF", "--pin", "convs.1=FBF+F*F",
    "--constraint", "accuracy drop <= 90%",
)  # fmt: skip


@pytest.mark.slow
def test_calls_are_recorded(monkeypatch, tmp_path, capsys):
    run = Run("one", "digits", (*SMALL, "--budget", "60s"))
    monkeypatch.setattr(tune_runs, "RUNS", (run,))
    path = tmp_path / "tuner_runs.json"
    assert tune_runs_main(["--output", str(path), "--threads", "1"]) == 0
    record = json.loads(path.read_text())
    (one,) = record["results"]
    assert (one["key"], one["command"]) == ("one", run.command)
    assert one["goal"] == 60.0
    assert one["seconds"] > 0
    assert one["environment"]["threads"] == 1
    assert len(one["baselines"]) == 1
    assert one["distilled"] >= 1  # how many the budget leaves time for is up to the machine
    assert one["chosen"]["widen"] == 1
    table = runs_table(record)
    assert table in capsys.readouterr().out
    assert "(≤ 60 s)" in table


def test_a_call_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(tune_runs, "PROGRAM", "raise SystemExit('no such objective')")
    with pytest.raises(RuntimeError, match="bitgnn tune --data digits: no such objective"):
        Run("one", "digits").run(Clock("cpu"), 7)
