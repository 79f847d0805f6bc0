"""Reference of every operator in plain PyTorch: the oracle that compiled kernels must equal.

``OPERATORS`` maps an operator's name to its function, whose signature is the operator's schema;
:mod:`~bitgnn.ops.reference.table` holds the rows that make them. Bits and integers of compiled
kernels equal these exactly. Nothing here is tuned for speed.
"""

from bitgnn.ops.reference import (
    bmm,
    bspmm,
    conv,
    gat,
    hamming,
    int8,
    pack,
    pairs,
    sampling,
    table,
    ternary,
    training,
)
from bitgnn.ops.reference.table import OPERATORS

__all__ = [
    "OPERATORS",
    "bmm",
    "bspmm",
    "conv",
    "gat",
    "hamming",
    "int8",
    "pack",
    "pairs",
    "sampling",
    "table",
    "ternary",
    "training",
]
