"""Ranks of a gloo group that aggregate a sharded graph, in processes of their own."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from bitgnn import BitTensor
from bitgnn.distributed import shard_graph


def aggregate(rank, world_size, store, cases, folder):
    """Write each case's sums and nodes of this rank to a file in a folder."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    try:
        mesh = init_device_mesh("cpu", (world_size,))
        found = {}
        for name, (source, x, options) in cases.items():
            sharded = shard_graph(source, mesh, **options)
            part = sharded.partition
            bits = part.x if x is None else BitTensor.from_float(x[part.nodes])
            found[f"{name}.sums"] = sharded.aggregate(bits)
            found[f"{name}.nodes"] = part.nodes
            entries = sharded.own.nnz, sharded.remote.nnz
            found[f"{name}.entries"] = torch.tensor(entries)
        torch.save(found, f"{folder}/rank-{rank}.pt")
    finally:
        dist.destroy_process_group()
