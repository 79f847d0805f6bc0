"""The machine record: JSON-ready, free of paths, with what a reader needs to judge numbers."""

import json
import os
import subprocess

import torch

from bitgnn.measure.report import environment, usable_cores


def test_record_is_json_and_names_versions(tmp_path, monkeypatch):
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
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was_run\n")
    program.chmod(0o755)
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "a"], check=True)
    subprocess.run([*git, "config", "core.fsmonitor", str(program)], check=True)
    record = environment()
    assert record["commit"] is record["dirty"] is None
    record = environment(tmp_path)
    assert len(record["commit"]) == 40
    assert record["dirty"]
    assert not (tmp_path / "was_run").exists()
