"""Trainable layers of the names and signatures of PyG, each with a precision."""

from bitgnn.nn.gcn_conv import GCNConv
from bitgnn.nn.precision import PRESETS, LayerPrecision

__all__ = ["PRESETS", "GCNConv", "LayerPrecision"]
