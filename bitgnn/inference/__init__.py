"""Frozen models: packed weights, thresholds, checkpoints and their memory."""

from bitgnn.inference.bound_program import FeatureForm
from bitgnn.inference.captured import Captured, capture
from bitgnn.inference.checkpoint import load, save
from bitgnn.inference.frozen import FreezeReport, Frozen
from bitgnn.inference.frozen_hetero import FrozenHetero
from bitgnn.inference.frozen_layers import FrozenLayer
from bitgnn.inference.frozen_model import FrozenModel
from bitgnn.inference.functions import sign_threshold
from bitgnn.inference.graph import GraphSpec, PreparedGraph
from bitgnn.inference.memory import (
    MeasuredMemory,
    MemoryReport,
    measured_memory,
    memory_report,
)
from bitgnn.inference.stream import Prediction, predict, stream

__all__ = [
    "Captured",
    "FeatureForm",
    "FreezeReport",
    "Frozen",
    "FrozenHetero",
    "FrozenLayer",
    "FrozenModel",
    "GraphSpec",
    "MeasuredMemory",
    "MemoryReport",
    "Prediction",
    "PreparedGraph",
    "capture",
    "load",
    "measured_memory",
    "memory_report",
    "predict",
    "save",
    "sign_threshold",
    "stream",
]
