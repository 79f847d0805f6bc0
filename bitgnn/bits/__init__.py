"""What bits look like: packed tensors, and adjacencies with their layouts."""

from bitgnn.bits.adjacency import BitAdjacency
from bitgnn.bits.images import BitImages
from bitgnn.bits.layouts import FrdcLayout
from bitgnn.bits.sparse_bits import select_rows, set_bits
from bitgnn.bits.tensor import BitTensor
from bitgnn.bits.ternary import BooleanTensor, TernaryTensor

__all__ = [
    "BitAdjacency",
    "BitImages",
    "BitTensor",
    "BooleanTensor",
    "FrdcLayout",
    "TernaryTensor",
    "select_rows",
    "set_bits",
]
