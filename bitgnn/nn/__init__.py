"""Trainable layers with PyG's signatures and a precision, binary and BWTA ones with torch's."""

from bitgnn.nn.attention.bwta_attention import BWTAAttention
from bitgnn.nn.attention.multihead import BWTAMultiheadAttention, BWTASelfAttention
from bitgnn.nn.binary_conv2d import BinaryConv2d
from bitgnn.nn.binary_linear import BinaryLinear
from bitgnn.nn.bwta_linear import ActivationQuantizer, BWTALinear
from bitgnn.nn.channel_shortcut import ChannelShortcut
from bitgnn.nn.graph.gcn_conv import GCNConv
from bitgnn.nn.graph.graph_conv import GraphConv
from bitgnn.nn.graph.sage_conv import SAGEConv
from bitgnn.nn.linear import Linear
from bitgnn.nn.precision import PRESETS, LayerPrecision
from bitgnn.nn.products.input_bits import InputBits
from bitgnn.nn.roles import default_precision
from bitgnn.nn.standardize import NodeStandardize

__all__ = [
    "PRESETS",
    "ActivationQuantizer",
    "BWTAAttention",
    "BWTALinear",
    "BWTAMultiheadAttention",
    "BWTASelfAttention",
    "BinaryConv2d",
    "BinaryLinear",
    "ChannelShortcut",
    "GCNConv",
    "GraphConv",
    "InputBits",
    "LayerPrecision",
    "Linear",
    "NodeStandardize",
    "SAGEConv",
    "default_precision",
]
