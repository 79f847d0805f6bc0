"""One rank of an NCCL group, started as a process of its own: ``python nccl_ranks.py JOB FOLDER``.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are those of torchrun.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import bitgnn
from bitgnn.distributed import parallelize, shard_graph

TIMEOUT = timedelta(seconds=15)
REPLAYS = 1000


def results(mesh, case):
    """Full results of a call, of a captured one, and of its last replay."""
    model = bitgnn.load(case["model"])
    options = {"num_nodes": len(case["x"]), "order": case["order"], "chunk_rows": case["rows"]}
    graph = shard_graph(case["edges"], mesh, **options)
    x = case["x"][graph.own_nodes()].cuda()
    found = [graph.full_tensor(parallelize(model, mesh)(x, graph)).cpu()]
    captured = parallelize(model, mesh, capture=True)
    first = captured(x, graph).clone()
    for _ in range(REPLAYS):
        last = captured(x, graph)
    found += [graph.full_tensor(first).cpu(), graph.full_tensor(last).cpu()]
    return found


def run(mesh, folder):
    """Write all cases' results."""
    cases = torch.load(folder / "cases.pt", weights_only=True)
    found = {name: results(mesh, case) for name, case in cases.items()}
    torch.save(found, folder / f"rank-{dist.get_rank()}-of-{dist.get_world_size()}.pt")


def lose(mesh, folder):
    """Rank 1 ends; the others go on until the group's timeout ends them."""
    case = next(iter(torch.load(folder / "cases.pt", weights_only=True).values()))
    graph = shard_graph(case["edges"], mesh, num_nodes=len(case["x"]), chunk_rows=case["rows"])
    model = parallelize(bitgnn.load(case["model"]), mesh)
    x = case["x"][graph.own_nodes()].cuda()
    model(x, graph).cpu()
    if dist.get_rank() == 1:
        os._exit(0)
    begin = time.monotonic()
    while time.monotonic() - begin < 120:
        model(x, graph).cpu()
    print("nothing was noticed", file=sys.stderr)


def main():
    job, folder = sys.argv[1], Path(sys.argv[2])
    device = torch.device("cuda", int(os.environ["RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=TIMEOUT, device_id=device)
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    {"run": run, "lose": lose}[job](mesh, folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
