"""The command `bitgnn distill` under torchrun: one model of all ranks, or one error."""

import json
import os
import subprocess
import sys

import gloo_ranks
import numpy as np
import pytest


@pytest.fixture
def torchrun(tmp_path):
    """Runs the command on a graph of its own, in two ranks."""
    graph = gloo_ranks.toy_graph()
    arrays = {name: graph[name].numpy() for name in ("x", "y", "edge_index")}
    masks = {"train_mask": graph.train_mask, "val_mask": graph.val_mask.clone()}
    masks["val_mask"][70:] = False
    masks["test_mask"] = ~(masks["train_mask"] | masks["val_mask"])
    arrays |= {name: mask.numpy() for name, mask in masks.items()}
    np.savez(tmp_path / "toy.npz", **arrays)

    def run(*options):
        launch = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "bitgnn"]
        command = ["distill", "--data", tmp_path / "toy.npz", "--epochs", "4", "--device", "cpu"]
        return subprocess.run(
            [sys.executable, "-m", *launch, *command, "-o", tmp_path / "out", *options],
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"}, capture_output=True, text=True,
        )  # fmt: skip

    return run


def test_ranks_write_one_model(torchrun, tmp_path):
    done = torchrun("--batch-size", "8", "--num-neighbors", "4", "--num-neighbors", "4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Written: ") == 1
    report = json.loads((tmp_path / "out" / "distill.json").read_text())
    assert report["epochs"] == report["teacher_epochs"] == 4
    assert report["scores"]["binary"]["val"] > 0.75
    assert (tmp_path / "out" / "log" / "student.checkpoint").is_dir()
    assert (tmp_path / "out" / "model").exists()


def test_ranks_tell_an_error_once(torchrun, tmp_path):
    done = torchrun()
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if line.startswith("bitgnn: ")]
    assert told == ["bitgnn: error: batch-size must be given where several ranks train, got none"]
    assert not (tmp_path / "out" / "log").exists()
