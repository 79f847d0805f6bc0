"""Trainable layers with PyG's signatures and a precision, binary and BWTA ones with torch's."""

from bitgnn.bits.pyg_storage import teach_storages
from bitgnn.nn.attention.bwta_attention import BWTAAttention
from bitgnn.nn.attention.gat_conv import GATConv
from bitgnn.nn.attention.gatv2_conv import GATv2Conv
from bitgnn.nn.attention.multihead import BWTAMultiheadAttention, BWTASelfAttention
from bitgnn.nn.attention.transformer_conv import TransformerConv
from bitgnn.nn.bwta_linear import ActivationQuantizer, BWTALinear
from bitgnn.nn.gcn_conv import GCNConv
from bitgnn.nn.gin_conv import GINConv
from bitgnn.nn.gine_conv import GINEConv
from bitgnn.nn.inputs.input_bits import InputBits
from bitgnn.nn.linear import Linear
from bitgnn.nn.neighbour_convs import GraphConv, SAGEConv
from bitgnn.nn.precision import PRESETS, LayerPrecision, default_precision
from bitgnn.nn.propagation.appnp import APPNP, LGConv
from bitgnn.nn.propagation.cheb_conv import ChebConv
from bitgnn.nn.propagation.reductions import aggregate
from bitgnn.nn.propagation.sg_conv import SGConv, SSGConv
from bitgnn.nn.propagation.tag_conv import TAGConv
from bitgnn.nn.recommender import Recommender
from bitgnn.nn.rgcn_conv import FastRGCNConv, RGCNConv
from bitgnn.nn.torch_layers import BinaryConv2d, BinaryLinear, ChannelShortcut, NodeStandardize
from bitgnn.ops.hamming import hamming_topk, merge_topk

__all__ = [
    "APPNP",
    "PRESETS",
    "ActivationQuantizer",
    "BWTAAttention",
    "BWTALinear",
    "BWTAMultiheadAttention",
    "BWTASelfAttention",
    "BinaryConv2d",
    "BinaryLinear",
    "ChannelShortcut",
    "ChebConv",
    "FastRGCNConv",
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "GINConv",
    "GINEConv",
    "GraphConv",
    "InputBits",
    "LGConv",
    "LayerPrecision",
    "Linear",
    "NodeStandardize",
    "RGCNConv",
    "Recommender",
    "SAGEConv",
    "SGConv",
    "SSGConv",
    "TAGConv",
    "TransformerConv",
    "aggregate",
    "default_precision",
    "hamming_topk",
    "merge_topk",
]

teach_storages()  # layers have imported PyG
