"""Frozen forms of BWTA layers: packed weights, scales settled, floats between the layers."""

from bitgnn.inference.bwta.attention import FrozenBWTAAttention, FrozenBWTAMultiheadAttention
from bitgnn.inference.bwta.linear import FrozenBWTALinear

__all__ = [
    "FrozenBWTAAttention",
    "FrozenBWTALinear",
    "FrozenBWTAMultiheadAttention",
]
