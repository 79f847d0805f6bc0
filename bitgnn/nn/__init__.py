"""Trainable layers of the names and signatures of PyG, each with a precision."""

from bitgnn.nn.gcn_conv import GCNConv
from bitgnn.nn.graph_conv import GraphConv
from bitgnn.nn.linear import Linear
from bitgnn.nn.precision import PRESETS, LayerPrecision
from bitgnn.nn.sage_conv import SAGEConv
from bitgnn.nn.standardize import NodeStandardize

__all__ = [
    "PRESETS",
    "GCNConv",
    "GraphConv",
    "LayerPrecision",
    "Linear",
    "NodeStandardize",
    "SAGEConv",
]
