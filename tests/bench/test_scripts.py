"""The benchmark scripts: quick runs leave a record, a table and a chart; bad arguments end them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from bench import tasks as models_tasks
from bench.tasks import planetoid_tasks, synthetic_task
from bitgnn.data import DataError

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def run(script, *arguments, folder):
    command = [sys.executable, str(SCRIPTS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


@pytest.mark.slow
def test_quick_run_leaves_record_table_and_chart(tmp_path):
    output = tmp_path / "out" / "ops.json"
    arguments = ("--quick", "--repeats", "7", "--threads", "1", "--output", str(output))
    done = run("bench_ops.py", *arguments, "--data-root", str(tmp_path), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads(output.read_text())
    assert record["benchmark"] == "ops"
    assert record["settings"] == {"threads": 1, "repeats": 7, "quick": True}
    assert record["environment"]["threads"] == 1
    for result in record["results"]:
        assert len(result["ours"]["seconds"]) == 7
        assert result["target"] is None
        assert result["best_baseline"] in result["baselines"]
    table = output.with_suffix(".md").read_text()
    assert all(result["name"] in table for result in record["results"])
    assert output.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
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


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
def test_no_cuda_device_is_one_clear_error(tmp_path):
    done = run("bench_ops.py", "--device", "cuda", folder=tmp_path)
    assert done.returncode == 2
    assert "--device cuda: torch sees no CUDA device" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_unreadable_graphs_are_named(monkeypatch):
    def load(name, root):
        if name == "CiteSeer":
            raise DataError("CiteSeer: no files")
        task = synthetic_task()
        return Data(task.x, task.edge_index, y=torch.arange(task.x.size(0)) % 7)

    monkeypatch.setattr(models_tasks, "load_planetoid", load)
    tasks, skipped = planetoid_tasks(None)
    assert [task.name for task in tasks] == ["Cora", "PubMed"]
    assert tasks[0].num_classes == 7
    assert [(entry.name, entry.reason) for entry in skipped] == [("CiteSeer", "CiteSeer: no files")]
