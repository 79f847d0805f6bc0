"""Graphs beyond one machine's memory: partitions on disk, rows on several ranks."""

from bitgnn.distributed.loading import Partition, load_partition
from bitgnn.distributed.partitioner import Partitioner
from bitgnn.distributed.power_law import PowerLawGraph
from bitgnn.distributed.sharding import ShardedAdjacency, shard_graph

__all__ = [
    "Partition",
    "Partitioner",
    "PowerLawGraph",
    "ShardedAdjacency",
    "load_partition",
    "shard_graph",
]
