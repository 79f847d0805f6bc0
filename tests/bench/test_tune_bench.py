"""Judging the tuner on recordings: what a replayed search sees, chooses, and is compared with."""

import json
import statistics

import pytest

from bench.tables.tuner import tuner_table
from bench.tasks import synthetic_task
from bench.tuner.graphs import untrained_workload
from bench.tuner.recording import Recording, Size, record
from bench_tune import Repeats, judge, replay
from bench_tune import main as tune_bench_main
from bitgnn.convert import Plan

LETTERS = [
    {"convs.0": f"FB{h}+{h}{a}B", "convs.1": f"BBF+F{b}F"} for h in "FB" for a in "FB" for b in "FB"
]


def _entries(latency, estimate):
    """A recorded plan for each pair of numbers."""
    plans = [
        Plan(letters, layout=layout, executor="eager")
        for letters in LETTERS
        for layout in ("csr", "blocked", "sliced")
    ]
    return [
        {
            "plan": plan.to_dict(),
            "timing": {"median": latency(n), "seconds": [latency(n)] * 7, "noisy": False},
            "estimate": estimate(n),
            "memory": {"peak": 100},
            "calls": [],
        }
        for n, plan in enumerate(plans)
    ]


def test_right_estimates_find_the_best_plan_in_few_measurements():
    entries = _entries(lambda n: 1e-3 * (1 + (n * 7) % 24), lambda n: 1e-3 * (1 + (n * 7) % 24))
    plan, measured = replay(entries, "cpu")
    assert plan.to_dict() == entries[0]["plan"]
    assert measured <= 0.2 * len(entries)


def test_estimates_that_are_all_wrong_measure_no_more_than_allowed():
    entries = _entries(lambda n: 1e-3 * (1 + n), lambda n: 1e-3 * (100 - n))
    plan, measured = replay(entries, "cpu")
    assert measured == int(0.2 * len(entries))
    assert plan.to_dict() != entries[0]["plan"]


def test_a_plan_that_was_lucky_in_what_the_search_saw_is_not_the_best_by_definition():
    entries = _entries(lambda n: 1e-3 * (1 + n), lambda n: 1e-3 * (1 + n))
    lucky = {**entries[3]["timing"], "seconds": [1e-4, 5e-3] * 3}
    entries[3]["timing"] = {**lucky, "median": statistics.median(lucky["seconds"])}
    made_up = {"name": "made up", "plans_in_space": 24, "noise": None, "environment": {}}
    result = judge("a", {"a": {**made_up, "plans": entries}}, "cpu")
    assert result["plan"] == entries[3]["plan"]
    assert result["chosen"] == 5e-3
    assert result["best"] == 1e-3
    assert result["ratio"] == pytest.approx(5.0)


def test_what_a_search_sees_is_not_what_it_is_judged_by():
    def entries(*again):
        return [
            {"timing": {"seconds": seconds}, "again": more}
            for seconds, more in zip(([1.0, 2.0, 3.0], [4.0]), again, strict=True)
        ]

    assert Repeats.of(entries(None, None)) == [
        Repeats((1.0, 3.0), (), (2.0,)),
        Repeats((4.0,), (), (4.0,)),  # a single repeat is both
    ]
    assert Repeats.of(entries({"seconds": [5.0, 6.0, 7.0]}, None)) == [
        Repeats((1.0, 2.0, 3.0), (6.0,), (5.0, 7.0)),
        Repeats((4.0,), (), ()),
    ]


def test_a_choice_that_was_not_measured_once_more_is_judged_by_what_was_seen():
    entries = _entries(lambda n: 1e-3 * (100 - n), lambda n: 1e-3 * (1 + n))
    for entry in entries:
        entry["again"] = None
    entries[-1]["again"] = {"seconds": [1.0] * 4}
    made_up = {"name": "made up", "plans_in_space": 24, "noise": None, "environment": {}}
    result = judge("a", {"a": {**made_up, "plans": entries}}, "cpu")
    assert result["best"] == 1.0
    chosen = next(entry for entry in entries if entry["plan"] == result["plan"])
    least = entries[-1]["timing"]["median"]
    assert result["ratio"] == pytest.approx(chosen["timing"]["median"] / least)
    assert result["ratio"] > 1


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    workload = untrained_workload(synthetic_task(60, 150, 40), "GCN")
    path = tmp_path_factory.mktemp("recordings") / "tune_cpu.json"
    plans = [
        Plan(letters, layout="csr", executor="eager", features=features)
        for letters in LETTERS
        for features in ("floats", "packed")
    ]
    found = Recording(path)
    for key in ("one", "two"):
        record(found, key, f"graph {key}", workload, plans, Size(0.0, 2))
    return path


def test_figures_of_a_recording(recording):
    graphs = Recording(recording).graphs
    result = judge("one", graphs, "cpu")
    entries = graphs["one"]["plans"]
    truth = [found.truth for found in Repeats.of(entries)]
    # Plans far from the fastest are not measured once more and have none.
    assert result["best"] == min(statistics.median(taken) for taken in truth if taken)
    assert result["repeats"] == 1
    assert result["ratio"] == pytest.approx(result["chosen"] / result["best"])
    assert result["share"] <= 0.2
    assert 0 <= result["order"] <= 1
    assert result["predictor"]["mean"] >= 1.0
    assert judge("one", {"one": graphs["one"]}, "cpu")["predictor"] is None


def test_the_predictor_is_judged_without_any_model_of_the_graph(recording):
    one, two = Recording(recording).graphs.values()
    alone = judge("one/GCN", {"one/GCN": one, "one/GraphSAGE": two}, "cpu")
    assert alone["predictor"] is None
    assert judge("one/GCN", {"one/GCN": one, "two/GraphSAGE": two}, "cpu")["predictor"] is not None


def test_command_writes_record_chart_and_table(recording, tmp_path, capsys):
    output = tmp_path / "tuner.json"
    arguments = ["--recordings", str(recording.parent), "--output", str(output), "--threads", "1"]
    assert tune_bench_main(arguments) == 0
    found = json.loads((tmp_path / "tuner_cpu.json").read_text())
    assert [result["name"] for result in found["results"]] == ["graph one", "graph two"]
    assert (tmp_path / "tuner_cpu.png").stat().st_size > 0
    assert tuner_table([found]) in capsys.readouterr().out


def test_command_without_recordings_fails(tmp_path, capsys):
    assert tune_bench_main(["--recordings", str(tmp_path)]) == 1
    assert "tune_cpu.json: not there" in capsys.readouterr().out


def test_the_table_says_what_was_recorded_where_and_what_a_gpu_works(recording, tmp_path):
    graphs = Recording(recording).graphs
    environment = {"cpu": "A", "gpu": "B", "threads": 2, "commit": "0123456789abc"}
    for content in graphs.values():
        content["environment"] = environment
        for entry in content["plans"]:
            entry["timing"]["noisy"] = content["name"] == "graph two"
    graphs = {"one/GCN": graphs["one"], "two/GraphSAGE": graphs["two"]}
    results = [judge(key, graphs, "cuda") for key in graphs]
    assert results[0]["gpu"] > 0
    lines = tuner_table([{"device": "cuda", "results": results}]).splitlines()
    assert "µs (GPU " in lines[2]
    where = "cuda: GCN, GraphSAGE on B, commit 0123456789"
    spread = "timings that spread by more than a quarter: graph two (100%)"
    assert lines[-1] == f"- {where}; {spread}."
    on_cpu = {**environment, "gpu": None}
    results = [{**judge("one/GCN", graphs, "cpu"), "environment": on_cpu}]
    lines = tuner_table([{"device": "cpu", "results": results}]).splitlines()
    assert lines[-1] == "- cpu: GCN on A, 2 threads, commit 0123456789."
    assert "(GPU" not in lines[2]
