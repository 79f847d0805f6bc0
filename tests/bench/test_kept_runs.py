"""Runs of experiments side by side: finished ones are not done again, summaries are theirs."""

import importlib
import json
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


# Workers import what they run, and cannot import a test.
JOBS = """
import os

def squared(job):
    case, data, device = job
    return {**case, "square": case["number"] ** 2, "where": f"{data} {device}"}

def squared_until_three(job):
    return os._exit(1) if job[0]["number"] == 3 else squared(job)

def squared_but_three(job):
    if job[0]["number"] == 3:
        raise ArithmeticError("three")
    return squared(job)
"""


@pytest.fixture
def run_and_keep(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS / "experiments"))
    return importlib.import_module("kept_runs").run_and_keep


@pytest.fixture
def jobs(monkeypatch, tmp_path):
    (tmp_path / "jobs_of_workers.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "jobs_of_workers", raising=False)
    return importlib.import_module("jobs_of_workers")


def total(runs):
    return [{"total": sum(run["square"] for run in runs)}]


def test_finished_runs_are_not_done_again(run_and_keep, jobs, tmp_path, capsys):
    output = tmp_path / "squares.json"
    kept = {"number": 3, "square": 100, "where": "an earlier call"}
    output.with_suffix(".jsonl").write_text(json.dumps(kept) + "\n")
    cases = [{"number": number} for number in (2, 3, 4)]
    assert run_and_keep(cases, jobs.squared, total, output, "folder", workers=2) == 0
    record = json.loads(output.read_text())
    assert sorted(run["number"] for run in record["runs"]) == [2, 3, 4]
    assert kept in record["runs"]
    commit = record["environment"]["commit"]
    assert [run["commit"] for run in record["runs"] if run != kept] == [commit] * 2
    assert record["summary"] == [{"total": 4 + 100 + 16}]
    assert {run["where"] for run in record["runs"]} == {"an earlier call", "folder cpu"}
    assert not output.with_suffix(".jsonl").exists()
    assert "{'total': 120}" in capsys.readouterr().out


def test_an_error_is_raised_behind_the_record_of_all_others(run_and_keep, jobs, tmp_path):
    output = tmp_path / "squares.json"
    cases = [{"number": number} for number in (2, 3, 4)]
    with pytest.raises(ArithmeticError, match="three"):
        run_and_keep(cases, jobs.squared_but_three, total, output, None)
    assert json.loads(output.read_text())["summary"] == [{"total": 4 + 16}]
    assert len(output.with_suffix(".jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("plain_loop", "plain_loop"),
        ("plain_loop", "plain_loop_depth"),
        ("distilled", "distilled"),
    ],
)
def test_summaries_are_those_of_the_records(script, name, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS / "experiments"))
    record = json.loads((SCRIPTS / "results" / f"{name}.json").read_text())
    assert importlib.import_module(script).summary(record["runs"]) == record["summary"]
