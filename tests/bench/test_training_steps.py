"""Steps of whole models: what is measured of each contender, and the table of it."""

import pytest

from bench import training_steps
from bench.tables.timings import training_steps_table
from bench.training_steps import AS_GRAPH, Size, measured_cases

OURS = {"bitgnn, edge_index", "bitgnn, BitAdjacency"}


@pytest.fixture
def sizes(monkeypatch):
    monkeypatch.setattr(
        training_steps,
        "SIZES",
        {"bags": Size(60, 240, 40, 3, True), "dense": Size(60, 240, 8, 3, False)},
    )


@pytest.fixture
def cases(sizes, tmp_path):
    return list(measured_cases(["bags", "dense"], str(tmp_path), "cpu", 7))


@pytest.mark.cuda
def test_steps_are_captured_on_a_gpu(sizes, tmp_path):
    for case in measured_cases(["bags"], str(tmp_path), "cuda", 7):
        assert OURS | {name + AS_GRAPH for name in OURS} <= set(case["forms"]), case["failed"]


def test_every_contender_is_measured(cases):
    assert [(case["graph"], case["layer"]) for case in cases] == [
        ("bags", "GCNConv"),
        ("bags", "SAGEConv"),
        ("dense", "GCNConv"),
        ("dense", "SAGEConv"),
    ]
    for case in cases:
        assert case["failed"] == {}
        assert {"PyG, edge_index", "PyG, torch CSR"} | OURS <= set(case["forms"])
        for form in case["forms"].values():
            assert len(form["time"]["seconds"]) == 7
            assert form["peak_bytes"] > 0


def test_table_shows_times_memory_and_failures(cases):
    machine = {
        "gpu": "Some GPU", "cuda": "13.0", "commit": "0123456789abcdef", "dirty": False,
        "versions": {"torch": "2.13.0", "torch-geometric": "2.8.1"},
        "date": "2026-01-02T03:04:05+00:00",
    }  # fmt: skip
    del cases[1]["forms"]["PyG, edge_index"]
    cases[1]["failed"]["PyG, edge_index"] = "out of memory"
    quick = {"time": {"median": 1e-6}, "peak_bytes": 0}
    cases[2]["forms"][f"bitgnn, edge_index{AS_GRAPH}"] = quick
    record = {
        "benchmark": "training cuda",
        "environment": machine,
        "settings": {"repeats": 7},
        "cases": cases,
    }
    text = training_steps_table(record)
    assert "Some GPU, CUDA 13.0" in text
    assert "| GCNConv, bags (60 nodes, " in text
    assert "| out of memory |" in text
    assert text.count("(graph 1.00 µs), ") == 1
    assert AS_GRAPH not in text
    assert text.count("×") == len(cases)
