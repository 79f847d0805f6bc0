"""Graphs beyond one machine's memory: partitions on disk, read by ranks."""

from bitgnn.distributed.loading import Partition, load_partition
from bitgnn.distributed.partitioner import Partitioner
from bitgnn.distributed.power_law import PowerLawGraph

__all__ = ["Partition", "Partitioner", "PowerLawGraph", "load_partition"]
