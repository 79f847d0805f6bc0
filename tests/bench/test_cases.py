"""Benchmark cases: ratios against the fastest baseline, goals, failures, what is resumed."""

import json
from argparse import Namespace
from functools import partial

import pytest
import torch

from bench.cases import Case, Contender, Goal, WrongResultError, describe
from bench.command import Unmeasured, run_benchmark
from bench.operators import case as operators
from bench.operators.case import OperatorCase
from bitgnn.data import DataError
from bitgnn.measure.timing import Clock, Timing

CPU = Clock("cpu")


def contender(name, ours, make=None, **options):
    return Contender(name, ours, make or (lambda: lambda: torch.ones(8)), **options)


def raising(error):
    def make():
        raise error

    return make


def test_contenders_that_fail_or_are_wrong_get_no_times():
    case = Case(
        "group",
        "case",
        lambda: [
            contender("peer", False),
            contender("ours", True),
            contender("wrong", True, raising(WrongResultError())),
            contender("broken", False, raising(RuntimeError("no such kernel\nmore"))),
        ],
    )
    result = {"group": "group", "name": "case", **case.run(CPU, 7)}
    failures = {c["name"]: c["failure"] for c in result["contenders"]}
    assert failures == {
        "peer": None,
        "ours": None,
        "wrong": "gives a wrong result",
        "broken": "RuntimeError: no such kernel",
    }
    assert not result["checked"]
    assert (result["form"], result["peer"]) == ("ours", "peer")
    assert "broken: RuntimeError: no such kernel" in describe(result)


def test_ratio_is_against_the_fastest_baseline(fake_time):
    ours, slow, fast = (partial(fake_time.sleep, seconds) for seconds in (0.2, 2.0, 0.8))
    case = OperatorCase("group", "name", ours, {"slow": slow, "fast": fast}, details={"edges": 5})
    record = case.run(CPU, 7)
    assert record["best_baseline"] == "fast"
    assert record["ratio"] == pytest.approx(4, rel=1e-3)
    assert record["edges"] == 5
    assert set(record["baselines"]) == {"slow", "fast"}
    assert len(record["ours"]["seconds"]) == 7


def test_a_wrong_operator_is_not_timed():
    case = OperatorCase("group", "name", print, {"other": print}, check=lambda: False)
    with pytest.raises(WrongResultError, match="name gives a wrong result"):
        case.run(CPU, 7)


@pytest.mark.parametrize(
    ("goal", "reached"),
    [
        (Goal("seconds", 1e-3), 0.5),
        (Goal("rate", 1e12), 2.0),
        (Goal("ratio", 2.0), 1.0),
        (Goal("ratio", 2.0, "slow"), 2.0),
        (None, None),
    ],
)
def test_goals_of_operators_on_a_gpu(goal, reached, monkeypatch):
    seconds = {"ours": 2e-3, "slow": 8e-3, "fast": 4e-3}

    def timed(contenders, clock, repeats):
        for contender in contenders:
            contender.times["timing"] = Timing((seconds[contender.name],) * 7)

    monkeypatch.setattr(operators, "time_in_turns", timed)
    monkeypatch.setattr(Contender, "prepare", lambda self, clock: None)
    case = OperatorCase(
        "BMM", "case", print, {"slow": print, "fast": print}, goal=goal, work=4e9,
        unit="operation", ceiling_seconds=1e-3, binds="memory",
    )  # fmt: skip
    found = case.run(Clock("cuda"), 7)
    assert found["reached"] == (None if reached is None else pytest.approx(reached))
    assert found["best_baseline"] == "fast"
    assert found["ratio"] == pytest.approx(2.0)
    assert found["rate"] == pytest.approx(2e12)
    assert found["ceiling_fraction"] == pytest.approx(0.5)


class Fake:
    """A case that gives a result or raises."""

    group = "group"

    def __init__(self, name, error=None):
        self.name, self.error = name, error

    def run(self, clock, repeats):
        if self.error is not None:
            raise self.error
        return {"goal": "some", "other": repeats}


@pytest.fixture
def arguments(tmp_path):
    return Namespace(
        benchmark="some", device="cpu", threads=1, repeats=7, quick=False, resume=False, only=None,
        output=tmp_path / "some.json",
    )  # fmt: skip


run_fakes = partial(run_benchmark, table=lambda record: "table", line=lambda result: "line")


def test_a_case_that_fails_leaves_the_others(arguments, capsys):
    cases = [
        Fake("one"), Fake("two", ValueError("no room")), Fake("three", DataError("no files")),
    ]  # fmt: skip
    assert run_fakes(arguments, cases) == 1
    for lost in (KeyboardInterrupt(), torch.AcceleratorError("the device is lost")):
        with pytest.raises(type(lost)):
            run_fakes(arguments, [*cases, Fake("four", lost)])
    record = json.loads(arguments.output.read_text())
    assert record["results"] == [{"group": "group", "name": "one", "goal": "some", "other": 7}]
    assert record["failed"] == [{"group": "group", "name": "two", "reason": "ValueError: no room"}]
    said = capsys.readouterr().err
    assert "left out of the record: three: no files\nleft out of the record: two:" in said


def test_quick_runs_have_no_goals_and_only_the_cases_asked_for(arguments):
    arguments.quick, arguments.only = True, ["on", "other"]
    assert run_fakes(arguments, [Fake("one"), Fake("two"), Fake("another")]) == 0
    results = json.loads(arguments.output.read_text())["results"]
    assert [result["name"] for result in results] == ["one", "another"]
    assert all(result["goal"] is None for result in results)


@pytest.mark.parametrize("what", ["commit", "repeats"])
def test_finished_cases_are_kept_unless_they_are_of_another_run(arguments, what):
    assert run_fakes(arguments, [Fake("one")]) == 0
    arguments.resume = True
    done_already = Fake("one", AssertionError("done again"))
    assert run_fakes(arguments, [done_already, Fake("two")]) == 0
    record = json.loads(arguments.output.read_text())
    assert [result["name"] for result in record["results"]] == ["one", "two"]
    (record["environment"] if what == "commit" else record["settings"])[what] = 99
    arguments.output.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=f"do not belong to this run: .*{what}"):
        run_fakes(arguments, [Fake("three")])


def test_a_run_without_results_writes_nothing(arguments):
    with pytest.raises(Unmeasured, match=r"nothing was measured, .*: one: no files"):
        run_fakes(arguments, [Fake("one", DataError("no files"))])
    assert not arguments.output.exists()
