"""The command `bitgnn infer`, alone and under torchrun."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import bitgnn
from bitgnn import freeze
from bitgnn.distributed import Partitioner
from bitgnn.models import GCN


@pytest.fixture
def job(tmp_path):
    """A model and a partition in files, and the model's scores."""
    torch.manual_seed(0)
    x, edges = torch.randn(30, 12), torch.randint(0, 30, (2, 150))
    model = GCN(12, 16, 3, 2, precision="bin").train()
    model(x, edges)
    frozen = freeze(model.eval())
    bitgnn.save(frozen, tmp_path / "model")
    packed = frozen.pack_features(x, layout="dense")
    Partitioner(edges, 3, tmp_path / "parts", x=packed, order="dealt").generate_partition()
    return tmp_path, edges, frozen(x, edges).numpy()


def scores(folder, ranks):
    found = np.full((30, 3), np.nan, np.float32)
    for rank in range(ranks):
        nodes, result = (
            np.load(folder / f"{name}-{rank:05d}-of-{ranks:05d}.npy")
            for name in ("nodes", "result")
        )
        found[nodes] = result
    return found


def test_one_process_writes_all_nodes(run, refused, job):
    folder, edges, expected = job
    arguments = ["--model", folder / "model", "--device", "cpu", "--threads", "1"]
    done = run("infer", folder / "parts", "-o", folder / "out", *arguments)
    assert "30 nodes written to" in done.stdout
    assert np.array_equal(scores(folder / "out", 1), expected)
    Partitioner(edges, 1, folder / "bare", num_nodes=30).generate_partition()
    assert "must hold features" in refused("infer", folder / "bare", *arguments)
    assert "META.json: is missing" in refused("infer", folder / "nowhere", *arguments)
    assert not torch.distributed.is_initialized()


def test_ranks_of_torchrun_write_their_own(job):
    folder, _, expected = job
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "bitgnn"]
    options = ["--model", folder / "model", "--device", "cpu", "--threads", "1"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, "-m", *launch, "infer", folder / "parts", "-o", folder / "out", *options],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "by 2 ranks" in done.stdout
    assert np.array_equal(scores(folder / "out", 2), expected)
