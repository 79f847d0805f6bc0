"""The tuner's budget of time, by a clock of the test's own."""

import math

import pytest

from bitgnn.tune import budget
from bitgnn.tune.budget import Budget, age_of_process, parse_seconds
from bitgnn.tune.objective import ObjectiveError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("1.5 min", 90), ("2h", 7200), ("250 ms", 0.25), ("30", 30), (45.5, 45.5)],
)
def test_times_are_read(text, seconds):
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-5s", "0s", "5 days", "nan"])
def test_other_texts_are_refused(text):
    with pytest.raises(ObjectiveError, match="budget must be a time"):
        parse_seconds(text)


def test_work_that_fits():
    now = [100.0]
    budget = Budget(10.0, clock=lambda: now[0])
    assert budget.fits("trial")
    now[0] += 4.0
    budget.did("trial", 4.0)
    assert (budget.spent, budget.left) == (4.0, 6.0)
    assert budget.fits("trial")
    assert not budget.fits("trial", share=0.7)
    assert budget.fits("another kind", share=0.7)
    now[0] += 2.0
    budget.did("trial", 2.0)  # three seconds are expected now
    now[0] += 1.5
    assert not budget.fits("trial")
    now[0] += 3.0
    assert not budget.fits("another kind")


def test_shares_count_from_the_stage():
    now = [0.0]
    budget = Budget(100.0, clock=lambda: now[0])
    assert budget.until(0.5) == 50.0
    now[0] = 60.0
    assert not budget.fits("trial", share=0.5)
    budget.begin_stage()
    assert budget.until(0.5) == 80.0
    assert budget.fits("trial", share=0.5)
    now[0] = 81.0
    assert not budget.fits("trial", share=0.5)
    assert budget.fits("trial")
    now[0] = 120.0
    budget.begin_stage()
    assert not budget.fits("trial")
    assert Budget().until(0.5) == math.inf


def test_what_is_gone_already_counts():
    assert Budget(10.0, clock=lambda: 100.0, spent=4.0).left == 6.0


def test_a_process_has_an_age(monkeypatch, tmp_path):
    age = age_of_process()
    assert 0 < age <= age_of_process()
    monkeypatch.setattr(budget, "PROCESS_FILE", tmp_path / "missing")
    assert age_of_process() == 0.0


def test_no_limit():
    budget = Budget()
    budget.did("trial", 1e9)
    assert budget.left == math.inf
    assert budget.fits("trial")
