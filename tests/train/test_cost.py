"""What training costs: counted with all that a form needs, recorded with its goal."""

import json

import pytest

from bench_training import main, training_cost

CONFIG = """
name: tiny
dataset: {name: digits}
hidden_channels: 8
seeds: 1
forms:
  fp32: {epochs: 4, learning_rate: 0.01}
  full: {epochs: 2, learning_rate: 0.01, teachers: [fp32], distill: 1.0}
  bin: {epochs: 2, learning_rate: 0.01, teachers: [full], distill: 1.0}
"""


def test_cost_counts_what_is_needed(config, data):
    found = training_cost(config, data, 3)
    assert found["fp32"]["cost_ratio"] == 1.0
    assert found["bin"]["needs"] == ["full"]
    whole = {form: entry["epochs"] * entry["seconds_per_epoch"] for form, entry in found.items()}
    expected = (whole["bin"] + whole["full"]) / whole["fp32"]
    assert found["bin"]["cost_ratio"] == pytest.approx(expected)
    assert all(len(entry["all_seconds"]) == 3 for entry in found.values())
    with pytest.raises(ValueError, match="epochs must be at least 3, got 2"):
        training_cost(config, data, 2)


def test_record_is_written(tmp_path):
    (tmp_path / "tiny.yaml").write_text(CONFIG)
    output = tmp_path / "training_cost.json"
    options = ["--configs", str(tmp_path), "--output", str(output)]
    assert main([*options, "--only", "tiny", "--epochs", "3"]) == 0
    record = json.loads(output.read_text())
    graph = record["graphs"]["digits"]
    assert graph["forms"]["bin"]["needs"] == ["full", "fp32"]
    (goal,) = graph["goals"]
    assert goal["value"] == graph["forms"]["bin"]["cost_ratio"]
    assert goal["met"] == (goal["value"] <= 2.0)
