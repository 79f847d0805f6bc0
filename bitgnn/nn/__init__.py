"""Trainable layers of the signatures of PyG, each with a precision, and binary ones of torch's."""

from bitgnn.nn.binary_conv2d import BinaryConv2d
from bitgnn.nn.binary_linear import BinaryLinear
from bitgnn.nn.channel_shortcut import ChannelShortcut
from bitgnn.nn.gcn_conv import GCNConv
from bitgnn.nn.graph_conv import GraphConv
from bitgnn.nn.linear import Linear
from bitgnn.nn.precision import PRESETS, LayerPrecision
from bitgnn.nn.sage_conv import SAGEConv
from bitgnn.nn.standardize import NodeStandardize

__all__ = [
    "PRESETS",
    "BinaryConv2d",
    "BinaryLinear",
    "ChannelShortcut",
    "GCNConv",
    "GraphConv",
    "LayerPrecision",
    "Linear",
    "NodeStandardize",
    "SAGEConv",
]
