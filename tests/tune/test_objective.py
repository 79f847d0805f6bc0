"""Objectives, limits and budgets: how they are read, kept, and explained where none is kept."""

import math

import pytest

from bitgnn.tune import objective
from bitgnn.tune.objective import (
    Budget,
    Constraint,
    Goal,
    Measures,
    ObjectiveError,
    age_of_process,
    pareto_front,
    parse_seconds,
)

FAST = Measures(accuracy=0.70, latency=1e-3, memory=5e6)
SMALL = Measures(accuracy=0.75, latency=4e-3, memory=1e6)
GOOD = Measures(accuracy=0.82, latency=9e-3, memory=9e6)


def goal(reference, *limits, objective="latency"):
    return Goal(objective, Goal.read(objective, limits).constraints, reference)


@pytest.mark.parametrize(
    ("text", "what", "limit"),
    [
        ("latency <= 2 ms", "latency", 2e-3),
        ("latency<=250us", "latency", 250e-6),
        ("Latency <= 1.5 µs", "latency", 1.5e-6),
        ("memory <= 10 MB", "memory", 10e6),
        ("memory <= .5 GiB", "memory", 2.0**29),
        ("accuracy drop <= 1%", "accuracy drop", 0.01),
        ("accuracy  drop <= 0 points", "accuracy drop", 0.0),
    ],
)
def test_limits_are_read(text, what, limit):
    read = Constraint.parse(text)
    assert read.what == what
    assert read.limit == pytest.approx(limit)
    assert Constraint.parse(str(read)).limit == pytest.approx(limit, rel=1e-2)


def test_times_are_read():
    texts = {"60s": 60, "1.5 min": 90, "2h": 7200, "250 ms": 0.25, "30": 30, 45.5: 45.5}
    for text, seconds in texts.items():
        assert parse_seconds(text) == pytest.approx(seconds)


WRONG_LIMITS = (
    "latency < 2 ms", "latency <= 2 MB", "speed <= 2 ms", "memory <= -1 MB", "latency <= 2", "", 3,
)  # fmt: skip


@pytest.mark.parametrize(
    ("read", "given", "message"),
    [
        *((Constraint.parse, text, "constraint must have the form") for text in WRONG_LIMITS),
        *(
            (lambda value: Constraint("latency", value), value, "finite and at least 0")
            for value in (math.nan, math.inf, -1.0)
        ),
        (lambda name: Goal.read(name, ()), "speed", "'latency', 'memory', 'accuracy'"),
        *(
            (parse_seconds, text, "budget must be a time")
            for text in ("", "soon", "-5s", "0s", "5 days", "nan")
        ),
    ],
)
def test_what_cannot_be_read(read, given, message):
    with pytest.raises(ObjectiveError, match=message):
        read(given)


@pytest.mark.parametrize("points", [1, 7, 29, 58])
def test_a_drop_of_just_the_limit_is_kept(points):
    for hundredths in range(points, 101):
        wanted = goal(hundredths / 100, f"accuracy drop <= {points}%")
        found = Measures((hundredths - points) / 100, 1e-3, 1.0)
        assert wanted.meets(found)
        assert wanted.preference(found)[0] == 0.0
        assert not wanted.meets(Measures(found.accuracy - 1e-4, 1e-3, 1.0))
        assert not wanted.meets(Measures(math.nan, 1e-3, 1.0))


def test_the_nearest_where_none_keeps_the_limits():
    both = goal(0.9, "accuracy drop <= 1%", "latency <= 5 ms")
    assert sorted([FAST, SMALL, GOOD], key=both.preference) == [GOOD, SMALL, FAST]
    latency = goal(0.9, "latency <= 5 ms")
    assert sorted([GOOD, SMALL, FAST], key=latency.preference) == [FAST, SMALL, GOOD]


def test_the_front_and_the_best_of_each_objective():
    slower = Measures(accuracy=0.70, latency=2e-3, memory=5e6)
    assert pareto_front([slower, GOOD, FAST, SMALL, FAST]) == [2, 3, 1]
    assert pareto_front([]) == []
    for name, best in (("latency", FAST), ("memory", SMALL), ("accuracy", GOOD)):
        assert min([FAST, SMALL, GOOD], key=lambda p, name=name: p.rank(name)) is best


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (["latency <= 1 us"],
         "latency <= 1 us cannot be met: the nearest plan has 1 ms, 999 us too much"),
        (["latency <= 5 ms", "accuracy drop <= 5%"],
         "accuracy drop <= 5.00% cannot be met together with latency <= 5 ms: the nearest plan "
         "that keeps the latter has 7.00%, 2.00% too much"),
        (["latency <= 2 ms", "memory <= 2 MB", "accuracy drop <= 1%"],
         "the limits cannot be met together; the nearest plan misses latency <= 2 ms: it has 9 ms, "
         "7 ms too much; memory <= 2 MB: it has 9 MB, 7 MB too much"),
    ],
)  # fmt: skip
def test_limits_that_nothing_keeps(limits, told):
    assert goal(0.82, *limits).explain_unmet([FAST, SMALL, GOOD]) == told
    assert goal(0.82, *limits).explain_unmet([]) == "no plan is left to choose from"


def test_work_that_fits():
    now = [96.0]
    budget = Budget(14.0, clock=lambda: now[0], spent=4.0)
    assert budget.fits("trial")
    now[0] += 4.0
    budget.did("trial", 4.0)
    assert (budget.spent, budget.left) == (8.0, 6.0)
    assert budget.fits("trial")
    assert not budget.fits("trial", share=0.8)
    assert budget.fits("another kind", share=0.8)
    now[0] += 2.0
    budget.did("trial", 2.0)  # three seconds are expected now
    now[0] += 1.5
    assert not budget.fits("trial")
    now[0] += 3.0
    assert not budget.fits("another kind")
    endless = Budget()
    endless.did("trial", 1e9)
    assert (endless.left, endless.seconds_left) == (math.inf, None)
    assert endless.fits("trial")


def test_what_is_left_is_shared():
    now = [0.0]
    budget = Budget(100.0, clock=lambda: now[0])
    now[0] = 20.0
    part = budget.part(0.6, 2)
    assert (part.seconds, part.spent) == (20.0, 0.0)
    now[0] = 30.0
    assert part.left == 10.0
    now[0] = 70.0
    assert budget.part(0.6).seconds == part.seconds_left == 0.0
    assert Budget().part(0.5, 3).seconds == math.inf


def test_a_process_has_an_age(monkeypatch, tmp_path):
    assert 0 < age_of_process() <= age_of_process()
    monkeypatch.setattr(objective, "PROCESS_FILE", tmp_path / "missing")
    assert age_of_process() == 0.0
