"""Ranks on GPUs over NCCL give what one GPU gives, to the bit; a rank that ends ends the others."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import nccl_ranks
import pytest
import torch

import bitgnn
from bitgnn import freeze
from bitgnn.distributed import PowerLawGraph
from bitgnn.models import GCN, GraphSAGE

pytestmark = [pytest.mark.cuda]
NODES, EDGES, FEATURES = 20_000, 400_000, 100


def start(job, folder, world_size):
    """Processes of all ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = {
        **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world_size), "NCCL_NVLS_ENABLE": "0", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    }  # fmt: skip
    command = [sys.executable, nccl_ranks.__file__, job, str(folder)]
    return [
        subprocess.Popen(command, env={**base, "RANK": str(rank)}, stderr=subprocess.PIPE)
        for rank in range(world_size)
    ]


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """A folder with models, features and edges; and results of one GPU by name."""
    folder: Path = tmp_path_factory.mktemp("nccl")
    pairs = [torch.stack([torch.from_numpy(end) for end in pair])
             for pair in PowerLawGraph(NODES, EDGES, seed=1).blocks()]  # fmt: skip
    edges, x = torch.cat(pairs, dim=1), torch.randn(NODES, FEATURES)
    made, expected = {}, {}
    for kind, out, order, rows in (
        (GraphSAGE, 172, "range", 3000), (GraphSAGE, 7, "dealt", None),
        (GCN, 172, "range", None), (GCN, 7, "dealt", 3000),
    ):  # fmt: skip
        torch.manual_seed(0)
        model = kind(FEATURES, 128, out, 3, precision="bin").train()
        model(x, edges)
        name = f"{kind.__name__} {out} {order}"
        frozen = freeze(model.eval())
        bitgnn.save(frozen, folder / name)
        made[name] = {
            "model": str(folder / name), "x": x, "edges": edges, "order": order, "rows": rows,
        }  # fmt: skip
        expected[name] = frozen.cuda()(x.cuda(), edges.cuda()).cpu()
    torch.save(made, folder / "cases.pt")
    return folder, expected


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_gpus_compute_what_one_does(cases, world_size):
    if torch.cuda.device_count() < world_size:
        pytest.skip(f"needs {world_size} GPUs, there are {torch.cuda.device_count()}")
    folder, expected = cases
    for rank in start("run", folder, world_size):
        _, told = rank.communicate(timeout=300)
        assert rank.returncode == 0, told.decode()[-3000:]
    for rank in range(world_size):
        found = torch.load(folder / f"rank-{rank}-of-{world_size}.pt", weights_only=True)
        for name, result in expected.items():
            for kind, one in zip(("called", "captured", "replayed"), found[name], strict=True):
                assert torch.equal(one, result), (name, kind, rank)


def test_gpus_that_lose_one_end(cases):
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs 2 GPUs, there are {torch.cuda.device_count()}")
    first, second = start("lose", cases[0], 2)
    second.communicate(timeout=120)
    _, told = first.communicate(timeout=120)
    assert first.returncode != 0
    text = told.decode()
    assert "nothing was noticed" not in text
    assert "timeout" in text.lower() or "another rank has ended" in text, text[-3000:]
