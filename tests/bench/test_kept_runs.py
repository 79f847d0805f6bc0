"""Runs of experiments side by side: what is finished is kept and not done again."""

import importlib
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "scripts" / "experiments"


@pytest.fixture
def run_and_keep(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("kept_runs").run_and_keep


def squared(job):
    case, data, device = job
    return {**case, "square": case["number"] ** 2, "where": f"{data} {device}"}


def total(runs):
    return [{"total": sum(run["square"] for run in runs)}]


def test_finished_runs_are_not_done_again(run_and_keep, tmp_path, capsys):
    output = tmp_path / "squares.json"
    kept = {"number": 3, "square": 100, "where": "an earlier call"}
    output.with_suffix(".jsonl").write_text(json.dumps(kept) + "\n")
    cases = [{"number": number} for number in (2, 3, 4)]
    assert run_and_keep(cases, squared, total, output, "folder", workers=2) == 0
    record = json.loads(output.read_text())
    assert sorted(run["number"] for run in record["runs"]) == [2, 3, 4]
    assert kept in record["runs"]
    assert record["summary"] == [{"total": 4 + 100 + 16}]
    assert {run["where"] for run in record["runs"]} == {"an earlier call", "folder cpu"}
    assert not output.with_suffix(".jsonl").exists()
    assert "{'total': 120}" in capsys.readouterr().out
