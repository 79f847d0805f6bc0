"""Objectives and limits: how they are read, kept and ranked; the Pareto front."""

import math

import pytest

from bitgnn.tune.goal import Constraint, Goal, Measures, pareto_front

FAST = Measures(accuracy=0.70, latency=1e-3, memory=5e6)
SMALL = Measures(accuracy=0.75, latency=4e-3, memory=1e6)
GOOD = Measures(accuracy=0.82, latency=9e-3, memory=9e6)


def goal(reference, *limits):
    return Goal("latency", Goal.read("latency", limits).constraints, reference)


@pytest.mark.parametrize(
    ("text", "quantity", "limit"),
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
def test_limits_are_read(text, quantity, limit):
    read = Constraint.parse(text)
    assert read.quantity == quantity
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
    with pytest.raises(ValueError, match="tune: constraints must have the form"):
        Goal.read("latency", [text])
    with pytest.raises(ValueError, match="objective must be one of"):
        Goal.read(text, ())


@pytest.mark.parametrize("points", [1, 7, 29, 58])
def test_a_drop_of_just_the_limit_is_kept(points):
    for hundredths in range(points, 101):
        wanted = goal(hundredths / 100, f"accuracy drop <= {points}%")
        found = Measures((hundredths - points) / 100, 1e-3, 1.0)
        assert not wanted.missed(found)
        assert wanted.preference(found)[0] == 0.0
        assert wanted.missed(Measures(found.accuracy - 1e-4, 1e-3, 1.0))
        assert wanted.missed(Measures(math.nan, 1e-3, 1.0))


def test_the_nearest_where_none_keeps_the_limits():
    both = goal(0.9, "accuracy drop <= 1%", "latency <= 5 ms")
    assert sorted([FAST, SMALL, GOOD], key=both.preference) == [GOOD, SMALL, FAST]
    latency = goal(0.9, "latency <= 5 ms")
    assert sorted([GOOD, SMALL, FAST], key=latency.preference) == [FAST, SMALL, GOOD]
    assert latency.missed(GOOD) == latency.constraints


def test_the_front_and_the_best_of_each_objective():
    slower = Measures(accuracy=0.70, latency=2e-3, memory=5e6)
    assert pareto_front([slower, GOOD, FAST, SMALL, FAST]) == [2, 3, 1]
    assert pareto_front([]) == []
    unknown = Measures(math.nan, 1e-3, 5e6)
    assert pareto_front([unknown, FAST]) == [1]
    for name, best in (("latency", FAST), ("memory", SMALL), ("accuracy", GOOD)):
        assert min([FAST, SMALL, GOOD], key=lambda p, name=name: p.rank(name)) is best
