"""Packed tensors, and adjacencies with their layouts."""

import torch

from bitgnn.bits.adjacency import BitAdjacency
from bitgnn.bits.features import BitFeatures, Int8Features
from bitgnn.bits.functions import cat, select_rows, set_bits, stack
from bitgnn.bits.int8 import Int8Tensor
from bitgnn.bits.layouts import FrdcLayout
from bitgnn.bits.pyg_storage import teach_storages
from bitgnn.bits.rows import PackedRows, rebuild
from bitgnn.bits.tensor import BitImages, BitTensor
from bitgnn.bits.ternary import BooleanTensor, TernaryTensor

__all__ = [
    "BitAdjacency",
    "BitFeatures",
    "BitImages",
    "BitTensor",
    "BooleanTensor",
    "FrdcLayout",
    "Int8Features",
    "Int8Tensor",
    "PackedRows",
    "TernaryTensor",
    "cat",
    "select_rows",
    "set_bits",
    "stack",
]

# What torch.load(weights_only=True) may call: it checks what it is given.
torch.serialization.add_safe_globals([rebuild])
teach_storages()
