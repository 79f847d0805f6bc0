"""The table of tutorial models that were trained in a plain loop."""

import importlib.util
from pathlib import Path

import pytest

from bench.tables.plain_loop import depth_table, plain_loop_table, study_table

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "experiments" / "plain_loop.py"
MACHINE = {
    "cpu": "Some CPU", "gpu": "Some GPU", "commit": "0123456789abcdef", "dirty": False,
    "versions": {"torch": "2.13.0", "torch-geometric": "2.8.1"},
    "date": "2026-01-02T03:04:05+00:00",
}  # fmt: skip


def runs_of(graph, form, tests, layer="GCNConv", layers=2, weight_decay=5e-4):
    case = {
        "graph": graph, "form": form, "layer": layer, "layers": layers,
        "weight_decay": weight_decay,
    }  # fmt: skip
    proof = {} if form == "fp32" else {"differing_nodes": 0}
    return [{**case, **proof, "seed": seed, "test": test} for seed, test in enumerate(tests)]


@pytest.fixture
def summary(monkeypatch):
    """The script's own summary, so that both agree on what a record holds."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("plain_loop", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.summary


def record_of(summary, runs):
    return {"environment": MACHINE, "runs": runs, "summary": summary(runs)}


def tutorial_runs():
    return [
        *runs_of("Cora", "fp32", [80.0, 82.0]),
        *runs_of("Cora", "bin", [80.0, 80.0]),
        *runs_of("Cora", "full", [82.0, 82.0]),
        *runs_of("Photo", "fp32", [90.0, 92.0]),
        *runs_of("Photo", "bin", [88.0, 88.0]),
    ]


def test_rows_are_graphs_and_their_mean(summary):
    text = plain_loop_table(record_of(summary, tutorial_runs()))
    assert "| graph | fp32, % | bin: points behind | full: points behind |" in text
    assert "| Cora | 81.0 | 1.0 | -1.0 |" in text
    assert "| Photo | 91.0 | 3.0 |  |" in text
    assert text.endswith("| mean | 86.0 | 2.0 | -1.0 |\n")
    assert "Trained on Some GPU, torch 2.13.0, PyG 2.8.1, commit 0123456789, 2026-01-02;" in text
    assert "seeds: 2. Frozen equals trained on every node in 6 of 6 runs." in text


def test_depth_has_a_row_for_each_variant(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    depth = importlib.import_module("depth")
    runs = [
        {"graph": graph, "layers": 3, "variant": variant, "seed": seed, "test": test + seed}
        for graph, shift in (("Cora", 0.0), ("Photo", 10.0))
        for variant, test in (("float", 80.0 + shift), ("batch norm", 78.5 + shift))
        for seed in (0, 1)
    ]
    record = {"environment": MACHINE, "runs": runs, "summary": depth.summary(runs)}
    text = depth_table(record)
    assert "commit 0123456789, 2026-01-02; seeds: 2." in text
    assert "| layers | variant | Cora | Photo | points behind |" in text
    assert "| 3 | float | 80.5 | 90.5 | 0.0 |" in text
    assert "| 3 | batch norm | 79.0 | 89.0 | 1.5 |" in text


def test_a_study_judges_forms_on_graphs_that_did_not_choose_them():
    gaps = {
        "bin": {"a": 1.0, "b": 2.0, "c": 0.0},
        "bin:1:sharpen=1": {"a": -4.0, "b": 3.0, "c": 0.5},
        "bin:1:epochs=400": {"a": -9.0, "b": -9.0, "c": -9.0},
        "full": {"a": -9.0, "b": -9.0, "c": -9.0},
    }
    rows = [
        {"model": "GCNConv", "form": form, "gaps": of, "mean_gap": sum(of.values()) / 3,
         "worst_gap": max(of.values())}
        for form, of in gaps.items()
    ]  # fmt: skip
    text = study_table(
        {"environment": MACHINE, "runs": [{"seed": 0}, {"seed": 1}], "summary": rows}
    )
    assert "| GCNConv | bin:1:sharpen=1 | -0.2 | 3.0 | -4.0 | 3.0 | 0.5 |" in text
    assert "seeds: 2." in text
    # Without a, "bin" is better (1.0 there); without b and c the other one (3.0 and 0.5).
    assert "is 1.5 points behind on the mean of the graphs left out" in text
