"""Objectives and limits: how they are read, kept, and explained where nothing keeps them."""

import math

import pytest

from bitgnn.tune.objective import (
    Constraint,
    Measures,
    ObjectiveError,
    check_objective,
    explain_unmet,
    pareto_front,
    preference,
)

FAST = Measures(accuracy=0.70, latency=1e-3, memory=5e6)
SMALL = Measures(accuracy=0.75, latency=4e-3, memory=1e6)
GOOD = Measures(accuracy=0.82, latency=9e-3, memory=9e6)


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


@pytest.mark.parametrize(
    "text",
    [
        "latency < 2 ms",
        "latency <= 2 MB",
        "speed <= 2 ms",
        "memory <= -1 MB",
        "latency <= 2",
        "",
        3,
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(ObjectiveError, match="constraint must have the form"):
        Constraint.parse(text)


@pytest.mark.parametrize("limit", [math.nan, math.inf, -1.0])
def test_limits_are_numbers(limit):
    with pytest.raises(ObjectiveError, match="finite and at least 0"):
        Constraint("latency", limit)


def test_objectives_are_known():
    assert check_objective("memory") == "memory"
    with pytest.raises(ObjectiveError, match="'latency', 'memory', 'accuracy'"):
        check_objective("speed")


def test_whether_limits_are_kept():
    limit = Constraint("accuracy drop", 0.01)
    assert limit.is_met(GOOD, reference=0.82)
    assert not limit.is_met(SMALL, reference=0.82)
    assert not limit.is_met(Measures(math.nan, 1e-3, 1.0), reference=0.82)


@pytest.mark.parametrize("points", [1, 7, 29, 58])
def test_a_drop_of_just_the_limit_is_kept(points):
    limit = Constraint.parse(f"accuracy drop <= {points}%")
    for hundredths in range(points, 101):
        reference = hundredths / 100
        found = Measures((hundredths - points) / 100, 1e-3, 1.0)
        assert limit.is_met(found, reference)
        assert preference(found, [limit], reference, "latency")[0] == 0.0
        assert not limit.is_met(Measures(found.accuracy - 1e-4, 1e-3, 1.0), reference)


def test_the_nearest_where_none_keeps_the_limits():
    limits = [Constraint.parse("accuracy drop <= 1%"), Constraint.parse("latency <= 5 ms")]
    ranked = sorted([FAST, SMALL, GOOD], key=lambda p: preference(p, limits, 0.9, "latency"))
    assert ranked == [GOOD, SMALL, FAST]
    ranked = sorted([GOOD, SMALL, FAST], key=lambda p: preference(p, limits[1:], 0.9, "latency"))
    assert ranked == [FAST, SMALL, GOOD]


def test_the_front():
    slower = Measures(accuracy=0.70, latency=2e-3, memory=5e6)
    assert pareto_front([slower, GOOD, FAST, SMALL, FAST]) == [2, 3, 1]
    assert pareto_front([]) == []


@pytest.mark.parametrize(("objective", "best"), [("latency", 0), ("memory", 1), ("accuracy", 2)])
def test_the_best_of_each_objective(objective, best):
    points = [FAST, SMALL, GOOD]
    assert min(points, key=lambda point: point.rank(objective)) is points[best]


def test_a_limit_that_nothing_keeps():
    told = explain_unmet([FAST, SMALL, GOOD], [Constraint.parse("latency <= 1 us")], 0.82)
    assert told == "latency <= 1 us cannot be met: the nearest plan has 1 ms, 999 us too much"


def test_limits_that_nothing_keeps_together():
    limits = [Constraint.parse("latency <= 5 ms"), Constraint.parse("accuracy drop <= 5%")]
    told = explain_unmet([FAST, SMALL, GOOD], limits, 0.82)
    assert told.startswith("accuracy drop <= 5.00% cannot be met together with latency <= 5 ms")
    assert "has 7.00%, 2.00% too much" in told


def test_three_limits_of_which_no_two_fit():
    limits = [
        Constraint.parse("latency <= 2 ms"),
        Constraint.parse("memory <= 2 MB"),
        Constraint.parse("accuracy drop <= 1%"),
    ]
    told = explain_unmet([FAST, SMALL, GOOD], limits, 0.82)
    assert told.startswith("the limits cannot be met together; the nearest plan misses ")
    assert "too much" in told


def test_nothing_to_choose_from():
    assert explain_unmet([], [], 0.8) == "no plan is left to choose from"
