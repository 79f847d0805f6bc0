"""Frozen forms of BWTA layers: packed weights, scales settled, floats between the layers."""

from bitgnn.inference.bwta.attention import FrozenBWTAAttention
from bitgnn.inference.bwta.linear import FrozenBWTALinear
from bitgnn.inference.bwta.multihead_attention import FrozenBWTAMultiheadAttention

__all__ = [
    "FrozenBWTAAttention",
    "FrozenBWTALinear",
    "FrozenBWTAMultiheadAttention",
]
