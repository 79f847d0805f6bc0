"""Frozen models: packed weights, thresholds, checkpoints and their memory."""

from bitgnn.inference.checkpoint import load, save
from bitgnn.inference.fold import fold_batch_norm
from bitgnn.inference.freeze_gcn import freeze_gcn
from bitgnn.inference.frozen_gcn import FrozenGCN, FrozenGCNLayer, GraphOptions
from bitgnn.inference.memory import MemoryUse, frozen_memory, pyg_memory

__all__ = [
    "FrozenGCN",
    "FrozenGCNLayer",
    "GraphOptions",
    "MemoryUse",
    "fold_batch_norm",
    "freeze_gcn",
    "frozen_memory",
    "load",
    "pyg_memory",
    "save",
]
