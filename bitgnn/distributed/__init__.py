"""Graphs beyond one machine's memory: partitions on disk, rows on several ranks."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitgnn.distributed.loading import Partition, load_partition
    from bitgnn.distributed.parallel import ParallelModel, parallelize
    from bitgnn.distributed.partitioner import Partitioner
    from bitgnn.distributed.power_law import PowerLawGraph
    from bitgnn.distributed.sharding import ShardedAdjacency, shard_graph
    from bitgnn.distributed.training import ShardedTraining

# Imported on first use: ranks that read need no PyTorch Geometric, which takes seconds.
_LAZY = {
    "ParallelModel": "parallel",
    "Partition": "loading",
    "Partitioner": "partitioner",
    "PowerLawGraph": "power_law",
    "ShardedAdjacency": "sharding",
    "ShardedTraining": "training",
    "load_partition": "loading",
    "parallelize": "parallel",
    "shard_graph": "sharding",
}

__all__ = [
    "ParallelModel",
    "Partition",
    "Partitioner",
    "PowerLawGraph",
    "ShardedAdjacency",
    "ShardedTraining",
    "load_partition",
    "parallelize",
    "shard_graph",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'bitgnn.distributed' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bitgnn.distributed.{_LAZY[name]}"), name)
