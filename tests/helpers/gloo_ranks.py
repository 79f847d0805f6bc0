"""Ranks of a gloo group with a sharded graph, in processes of their own."""

import os
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import bitgnn
from bitgnn import BitTensor
from bitgnn.distributed import parallelize, shard_graph

TIMEOUT = timedelta(seconds=60)


@contextmanager
def group(rank, world_size, store, timeout=TIMEOUT):
    """The mesh of all ranks."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world_size, timeout=timeout
    )
    try:
        yield init_device_mesh("cpu", (world_size,))
    finally:
        dist.destroy_process_group()


def aggregate(rank, world_size, store, cases, folder):
    """Write each case's sums and nodes of this rank to a file in a folder."""
    with group(rank, world_size, store) as mesh:
        found = {}
        for name, (source, x, options) in cases.items():
            sharded = shard_graph(source, mesh, **options)
            nodes = sharded.own_nodes()
            bits = sharded.x if x is None else BitTensor.from_float(x[nodes])
            found[f"{name}.sums"] = sharded.aggregate(bits)
            found[f"{name}.nodes"] = nodes
        torch.save(found, f"{folder}/rank-{rank}.pt")


def run_models(rank, world_size, store, cases, folder):
    """Write each case's own and full results of this rank to a file in a folder.

    A case is the folder of a frozen model, features of all nodes, a graph, and its options.
    """
    with group(rank, world_size, store) as mesh:
        found = {}
        for name, (model, x, source, options) in cases.items():
            sharded = shard_graph(source, mesh, **options)
            parallel = parallelize(bitgnn.load(model), mesh)
            nodes = sharded.own_nodes()
            own = sharded.x if x is None else x[nodes]
            for time in range(2):
                result = parallel(own, sharded)
                found[f"{name}.{time}"] = sharded.full_tensor(result)
            found[f"{name}.nodes"], found[f"{name}.own"] = nodes, result
        torch.save(found, f"{folder}/rank-{rank}.pt")


def lose_one(rank, world_size, store, model, x, edges, folder):
    """Rank 1 ends after one forward; the others write the error of their next one to a file."""
    with group(rank, world_size, store, timedelta(seconds=20)) as mesh:
        sharded = shard_graph(edges, mesh, num_nodes=len(x), chunk_rows=4)
        parallel = parallelize(bitgnn.load(model), mesh)
        own = x[sharded.own_nodes()]
        parallel(own, sharded)
        if rank == 1:
            os._exit(0)
        try:
            parallel(own, sharded)
        except ConnectionError as error:
            with open(f"{folder}/error-{rank}", "w") as file:
                file.write(str(error))
        os._exit(0)  # the group cannot be left together any more
