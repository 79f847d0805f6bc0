"""Records name the machine and no path, and are written whole; numbers have three digits."""

import json
import os
import subprocess

import pytest
import torch

from bitgnn.measure.report import (
    environment,
    format_bytes,
    format_ratio,
    format_seconds,
    usable_cores,
    write_json,
)


def test_the_machine_is_named_without_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = environment()
    text = json.dumps(record)
    assert record["versions"]["torch"] == torch.__version__
    assert record["threads"] == torch.get_num_threads()
    assert 1 <= record["cores"] == usable_cores() <= os.cpu_count()
    assert record["cpu"]
    assert str(tmp_path) not in text
    assert os.path.expanduser("~") not in text


def test_git_is_run_in_a_named_repository_only(tmp_path, monkeypatch):
    """Settings of a repository may name programs, which git runs."""
    monkeypatch.delenv("BITGNN_COMMIT", raising=False)
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was_run\n")
    program.chmod(0o755)
    for command in (
        ["init", "-q"],
        ["commit", "-q", "--allow-empty", "-m", "a"],
        ["config", "core.fsmonitor", str(program)],
    ):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], check=True)
    record = environment()
    assert record["commit"] is record["dirty"] is None
    record = environment(tmp_path)
    assert len(record["commit"]) == 40
    assert record["dirty"]
    assert not (tmp_path / "was_run").exists()


@pytest.mark.parametrize("record", [{"x": float("nan")}, {"x": object()}])
def test_a_failed_write_leaves_the_old_file(tmp_path, record):
    path = tmp_path / "a" / "old.json"
    write_json(path, {"x": [1, 2.5, None]})
    with pytest.raises((TypeError, ValueError)):
        write_json(path, record)
    assert json.loads(path.read_text()) == {"x": [1, 2.5, None]}
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("function", "texts"),
    [
        (format_seconds, {1.5: "1.50 s", 0.0123: "12.3 ms", 999.4e-6: "999 µs", 5e-9: "5.00 ns"}),
        (format_bytes, {0: "0 B", 1023: "1023 B", 2048: "2.00 KiB", 3 * 2**30: "3.00 GiB"}),
        (format_ratio, {0.712: "0.71×", 23.46: "23.5×", 123.4: "123×"}),
    ],
)
def test_numbers_as_text(function, texts):
    assert {number: function(number) for number in texts} == texts
