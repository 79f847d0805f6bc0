"""The loading scripts: statistics, a timed frozen forward, and one clear line without data."""

import os
from pathlib import Path

import pytest

from bench import show

REPOSITORY = Path(__file__).resolve().parents[2]


def test_cora(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    named = os.environ.get("BITGNN_DATA")
    root = Path(named) if named else REPOSITORY.parent / "shared" / "datasets"
    if not any(root.glob("**/Cora/raw/ind.cora.x")):
        pytest.skip("Cora's raw files are neither in BITGNN_DATA nor in ../shared/datasets")
    assert show.cora_main(["--data-root", str(root), "--epochs", "2", "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    assert "graph               Cora\nnodes               2,708 (0 isolated)" in printed
    assert "edges               10,556 (0 self loops)" in printed
    assert "train / val / test  140 / 500 / 1,000" in printed
    assert "precision='bin'), 2 epochs of training" in printed
    assert "choose the same class on 100.00% of the nodes" in printed
    assert "frozen, packed features" in printed


def test_a_synthetic_reddit_is_named_so(capsys):
    assert show.reddit_main(["--synthetic", "0.002", "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    assert "graph               synthetic reddit x 0.002 (466 nodes" in printed
    assert "features            602" in printed
    assert "random weights" in printed
    assert "choose the same class on 100.00% of the nodes" in printed


def test_reddit_without_files_is_one_line(tmp_path, capsys, monkeypatch):
    import torch_geometric.datasets

    monkeypatch.setattr(torch_geometric.datasets.Reddit, "url", "http://127.0.0.1:9/reddit.zip")
    assert show.reddit_main(["--data-root", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = [text for text in captured.err.splitlines() if "error: " in text]
    assert "Put reddit_data.npz, reddit_graph.npz into" in line
    assert line.endswith("or run with --synthetic for a made-up graph")
    assert list(tmp_path.iterdir()) == []
