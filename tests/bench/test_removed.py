"""Kept records without the executors that are gone: the fastest of the others stand in."""

import pytest

from bench.tables.removed import without_removed


def contender(executor, seconds, **other):
    timing = None if seconds is None else {"median": seconds}
    found = {"family": "bitgnn", "form": "bin", "features": "floats", "memory": {"total": 8}}
    return {**found, "executor": executor, "timing": timing, **other}


def record(*contenders):
    entry = {
        "form": "bin", "features": "floats", "executor": "cooperative", "seconds": 1.0,
        "ratio": 6.0, "times_the_floor": 2.0, "memory": {"total": 9},
        "goals": [
            {"kind": "ratio", "value": 6, "reached": 1.0},
            {"kind": "bytes", "value": 8, "reached": 1.0},
            {"kind": "seconds", "value": 8, "reached": None},
        ],
    }  # fmt: skip
    return {"results": [{"ours": [entry], "contenders": list(contenders)}]}


def test_the_fastest_of_the_others_stands_in():
    (result,) = without_removed(
        record(
            contender("cooperative", 1.0),
            contender("eager", 5.0),
            contender("cuda_graph", 2.0),
            contender("cuda_graph", 0.5, family="PyG"),
            contender("cuda_graph", 0.5, form="full"),
            contender("cuda_graph", 0.5, features="packed"),
        )
    )["results"]
    assert "cooperative" not in {other["executor"] for other in result["contenders"]}
    (entry,) = result["ours"]
    assert entry["executor"] == "cuda_graph"
    found = entry["seconds"], entry["ratio"], entry["times_the_floor"], entry["memory"]["total"]
    assert found == (2.0, 3.0, 4.0, 8)
    assert [goal["reached"] for goal in entry["goals"]] == [0.5, 1.0, None]


@pytest.mark.parametrize("others", [(), (contender("eager", None),)])
def test_a_case_without_another_executor_is_left_out(others):
    (result,) = without_removed(record(*others))["results"]
    assert result["ours"] == []


def test_profiled_cases_and_other_records():
    profiled = {"cases": [{"name": "GCN, cooperative"}, {"name": "GCN, eager"}, {"graph": "Cora"}]}
    assert without_removed(profiled)["cases"] == profiled["cases"][1:]
    other = {"results": [{"name": "BMM"}], "runs": [1]}
    assert without_removed(other) == other
