"""Packed tensors, and adjacencies with their layouts."""

import torch

from bitgnn.bits.adjacency import BitAdjacency
from bitgnn.bits.features import BitFeatures
from bitgnn.bits.functions import cat, stack
from bitgnn.bits.images import BitImages
from bitgnn.bits.layouts import FrdcLayout
from bitgnn.bits.rows import PackedRows, rebuild
from bitgnn.bits.sparse_bits import select_rows, set_bits
from bitgnn.bits.tensor import BitTensor
from bitgnn.bits.ternary import BooleanTensor, TernaryTensor

__all__ = [
    "BitAdjacency",
    "BitFeatures",
    "BitImages",
    "BitTensor",
    "BooleanTensor",
    "FrdcLayout",
    "PackedRows",
    "TernaryTensor",
    "cat",
    "select_rows",
    "set_bits",
    "stack",
]

# What torch.load(weights_only=True) may call: it checks what it is given.
torch.serialization.add_safe_globals([rebuild])
