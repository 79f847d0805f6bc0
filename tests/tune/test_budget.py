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


def test_what_is_left_is_shared():
    now = [0.0]
    budget = Budget(100.0, clock=lambda: now[0])
    now[0] = 20.0
    part = budget.part(0.6, 2)
    assert (part.seconds, part.spent) == (20.0, 0.0)
    now[0] = 30.0
    assert part.left == 10.0
    now[0] = 70.0
    assert budget.part(0.6).seconds == 0.0
    assert Budget().part(0.5, 3).seconds == math.inf


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
