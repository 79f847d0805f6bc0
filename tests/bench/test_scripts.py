"""The benchmark scripts: quick runs leave a record, a table and a chart; bad arguments end them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bitgnn.bench.gcn import baselines, planetoid_tasks, synthetic_task

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def run(script, *arguments, folder):
    command = [sys.executable, str(SCRIPTS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


@pytest.mark.slow
@pytest.mark.parametrize(("script", "name"), [("bench_ops.py", "ops"), ("bench_gcn.py", "gcn")])
def test_quick_run_leaves_record_table_and_chart(tmp_path, script, name):
    output = tmp_path / "out" / f"{name}.json"
    arguments = ("--quick", "--repeats", "7", "--threads", "1", "--output", str(output))
    done = run(script, *arguments, "--data-root", str(tmp_path), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads(output.read_text())
    assert record["benchmark"] == name
    assert record["settings"] == {"threads": 1, "repeats": 7, "quick": True}
    assert record["environment"]["threads"] == 1
    for result in record["results"]:
        assert len(result["ours"]["seconds"]) == 7
        assert result["target"] is None
        assert result["best_baseline"] in result["baselines"]
    table = output.with_suffix(".md").read_text()
    assert all(result["name"] in table for result in record["results"])
    assert output.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    if name == "gcn":
        assert all(entry["ours"] < entry["baseline"] for entry in record["memory"])
    else:
        assert [entry["name"] for entry in record["skipped"]] == ["Flickr"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--repeats", "3"), "--repeats must be at least 7, got 3"),
        (("--threads", "0"), "--threads must be at least 1, got 0"),
        (("--nonsense",), "unrecognized arguments: --nonsense"),
    ],
)
def test_bad_arguments(tmp_path, arguments, message):
    done = run("bench_ops.py", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_forms_of_the_baseline_agree():
    scores = [forward() for forward in baselines(synthetic_task()).values()]
    for other in scores[1:]:
        torch.testing.assert_close(other, scores[0], rtol=1e-5, atol=1e-5)


def test_missing_graphs_are_named(tmp_path):
    tasks, skipped = planetoid_tasks(tmp_path)
    assert tasks == []
    assert [entry.name for entry in skipped] == ["Cora", "CiteSeer", "PubMed"]
    assert "planetoid/Cora/raw not found" in skipped[0].reason
