"""Scores of ensembles on several ranks, each a process that imports this by name."""

import copy
from pathlib import Path

import torch
import torch.distributed as dist


def write_scores(rank, worlds, folder, cases):
    """Shard ensembles over the ranks of each world, and write the scores that this one gets."""
    torch.set_num_threads(1)
    found = {}
    for world in worlds:
        if rank >= world:
            continue
        address = f"file://{Path(folder) / f'group of {world}'}"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
        shards = [copy.deepcopy(ensemble).shard() for ensemble, _ in cases]
        with torch.no_grad():
            pairs = zip(shards, cases, strict=True)
            scores = [shard(*inputs) for shard, (_, inputs) in pairs]
        found[str(world)] = {"scores": scores, "held": [len(shard.members) for shard in shards]}
        dist.destroy_process_group()
    torch.save(found, Path(folder) / f"{rank}.pt")
