"""Recordings hold every plan with its repeats, go on where they stopped, and refuse other files."""

import json

import pytest
from small_workload import small_data, small_workload

from bench.tuner import recording
from bench.tuner.recording import Recording, Size, graph_of, key_of, record, space_sample
from bitgnn.convert.plan import Plan
from bitgnn.measure.timing import Timing
from bitgnn.tune.space import Space

LETTERS = {"convs.0": "FBB+BBB", "convs.1": "BBF+FBF"}
FLOATS = {"convs.0": "FBF+FBB", "convs.1": "BFF+FFF"}
SIZE = Size(seconds=0.0, rounds=2)


@pytest.fixture(scope="module")
def workload():
    return small_workload(small_data())


@pytest.fixture
def plans():
    return [
        Plan(letters, features=features, layout=layout, executor="eager")
        for letters in (LETTERS, FLOATS)
        for features in ("floats", "packed")
        for layout in ("csr", "blocked")
    ]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tune_cpu.json"


def test_holds_every_plan_or_why_not(path, workload, plans):
    content = record(Recording(path), "tiny", "made up", workload, plans, SIZE)
    assert len(content["plans"]) == 6
    assert len(content["failed"]) == 2  # floats cannot be aggregated exactly from column blocks
    assert all("blocked" in entry["reason"] for entry in content["failed"])
    for entry in content["plans"]:
        assert Plan.from_dict(entry["plan"]) in plans
        assert entry["timing"]["seconds"]
        assert entry["base"] == pytest.approx(sum(seconds for _, seconds in entry["calls"]))
        assert entry["statistics"]["nodes"] == workload.num_nodes
        assert entry["memory"]["peak"] > 0
    assert {"cpu", "versions", "commit", "threads"} <= content["environment"].keys()


@pytest.mark.parametrize(("least", "count"), [(1, 2), (3, 3), (9, 3)])
def test_the_fastest_plans_are_measured_once_more(path, workload, plans, monkeypatch, least, count):
    every, taken = [], {}

    def measured(runs, device, *, rounds, seconds):
        every.append(len(runs))
        for run, found in zip(runs, [1.0, 1.2, 1.4, 3.0], strict=False):
            taken.setdefault(run, found)
        return [Timing((taken[run],) * rounds) for run in runs]

    monkeypatch.setattr(recording, "measure_in_turns", measured)
    monkeypatch.setattr(recording, "LEAST_AGAIN", least)
    floats = [plan for plan in plans if plan.layout == "csr"]
    content = record(Recording(path), "tiny", "made up", workload, floats, SIZE)
    assert {len(entry["timing"]["seconds"]) for entry in content["plans"]} == {SIZE.rounds}
    again = [entry["again"] for entry in content["plans"]]
    assert [timing is not None for timing in again] == [n < count for n in range(4)]
    assert len(again[0]["seconds"]) == recording.AGAIN_ROUNDS
    assert every == [4, count]


def test_statistics_do_not_depend_on_the_layout(path, workload, plans):
    content = record(Recording(path), "tiny", "made up", workload, plans[:2], SIZE)
    one, two = content["plans"]
    assert one["plan"]["layout"] != two["plan"]["layout"]
    assert one["statistics"] == two["statistics"]


def test_graphs_that_are_there_are_not_measured_again(path, workload, plans):
    first = record(Recording(path), "tiny", "made up", workload, plans[:1], SIZE)
    said = []
    again = Recording(path)
    assert record(again, "tiny", "made up", workload, plans, SIZE, progress=said.append) == (
        json.loads(json.dumps(first))
    )
    assert "recorded already" in said[0]
    record(again, "other", "made up", workload, plans[:1], SIZE)
    assert Recording(path).graphs.keys() == {"tiny", "other"}


@pytest.mark.parametrize("content", ["[]", '{"benchmark": "models"}', '{"benchmark": 3}', "{"])
def test_other_files_are_refused(path, content):
    path.write_text(content)
    with pytest.raises(ValueError):
        Recording(path)
    assert path.read_text() == content


def test_keys_are_of_a_graph_and_a_model(path):
    assert graph_of(key_of("cora", "GraphSAGE")) == "cora"
    held = Recording(path)
    held.graphs = {key_of("cora", "GCN"): {}, key_of("cora", "GraphSAGE"): {}, "photo": {}}
    assert held.graph_keys == ["cora", "photo"]


def test_recordings_of_one_machine_become_one(path, workload, plans):
    other = path.with_name("other.json")
    for place, key in ((path, "a/GCN"), (path, "b/GCN"), (other, "b/GCN"), (other, "c/GCN")):
        record(Recording(place), key, f"{key} of {place.name}", workload, plans[:1], SIZE)
    Recording(path).merge([Recording(other)])
    merged = Recording(path).graphs
    assert {key: content["name"] for key, content in merged.items()} == {
        "a/GCN": "a/GCN of tune_cpu.json",
        "b/GCN": "b/GCN of other.json",
        "c/GCN": "c/GCN of other.json",
    }
    foreign = Recording(other)
    foreign.graphs["c/GCN"]["environment"]["cpu"] = "another one"
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"of several machines: .*another one"):
        Recording(path).merge([foreign])
    assert path.read_bytes() == before


def test_a_sample_begins_with_letters_that_are_given(workload):
    space = Space.from_workload(workload)
    sample = space_sample(space, 1, first=[LETTERS])
    assert sample == space.plans(LETTERS)
    more = space_sample(space, 40, first=[LETTERS])
    assert more[: len(sample)] == sample
    assert len(more) == len({plan.describe() for plan in more})
    with pytest.raises(ValueError, match="no chain of this space"):
        space_sample(space, 1, first=[{"convs.0": "FBB+BBB", "convs.1": "FFF+FFF"}])


def test_a_sample_takes_letters_with_every_way_to_run_them(workload):
    space = Space.from_workload(workload)
    sample = space_sample(space, 5)
    letters = sample[0].letters
    assert [plan for plan in sample if plan.letters == letters] == space.plans(letters)
    assert len(sample) >= 5
    assert space_sample(space, 5) == sample
    assert space_sample(space, 5, seed=1) != sample


def test_the_size_of_the_space_is_extrapolated_from_a_sample(path, workload):
    space = Space.from_workload(workload, allow={"layout": ("csr",), "features": ("floats",)})
    plans = space_sample(space, 2)
    content = record(Recording(path), "tiny", "made up", workload, plans, SIZE, space=space)
    assert content["plans_in_space"] >= space.num_chains
    whole = record(Recording(path), "whole", "made up", workload, plans, SIZE)
    assert whole["plans_in_space"] == len(plans)
