"""Benchmark cases: ratios are against the fastest baseline, wrong results are not timed."""

import time

import pytest

from bench.cases import Case, run_case


def sleeper(seconds):
    return lambda: time.sleep(seconds)


def test_ratio_is_against_the_fastest_baseline():
    case = Case(
        "group",
        "name",
        sleeper(0.003),
        {"slow": sleeper(0.03), "fast": sleeper(0.012)},
        details={"edges": 5},
    )
    record = run_case(case, warmup=1, repeats=7)
    assert record["best_baseline"] == "fast"
    assert 2 < record["ratio"] < 5
    assert record["edges"] == 5
    assert set(record["baselines"]) == {"slow", "fast"}
    assert len(record["ours"]["seconds"]) == 7


def test_a_wrong_result_is_not_timed():
    case = Case("group", "name", sleeper(0), {"other": sleeper(0)}, check=lambda: False)
    with pytest.raises(RuntimeError, match="name gives a wrong result"):
        run_case(case)
