"""Frozen models: packed weights, thresholds, checkpoints and their memory."""

from bitgnn.inference.bound_program import FeatureForm
from bitgnn.inference.checkpoint import load, save
from bitgnn.inference.cuda_graph import CudaGraphExecutor
from bitgnn.inference.fold import sign_threshold
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.graph import FloatAdjacency, GraphSpec, PreparedGraph
from bitgnn.inference.memory import MemoryUse, frozen_memory, pyg_memory
from bitgnn.inference.report import FreezeReport

__all__ = [
    "CudaGraphExecutor",
    "FeatureForm",
    "FloatAdjacency",
    "FreezeReport",
    "FrozenModel",
    "GraphSpec",
    "MemoryUse",
    "PreparedGraph",
    "frozen_memory",
    "load",
    "pyg_memory",
    "save",
    "sign_threshold",
]
