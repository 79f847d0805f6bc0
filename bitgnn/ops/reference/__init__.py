"""Reference of every operator in plain PyTorch: the oracle that compiled kernels must equal.

``OPERATORS`` maps an operator's name to its function, whose signature is the operator's schema;
:mod:`~bitgnn.ops.reference.table` holds the shapes. Bits and integers of compiled kernels equal
these exactly. Nothing here is tuned for speed.
"""

from bitgnn.ops.reference import (
    auxiliary,
    bit_pool,
    bits_linear,
    bmm,
    bspmm,
    conv,
    first_layers,
    layouts,
    linear_chain,
    looked_up,
    pack,
    pairs,
    quantise,
    sampling,
    table,
    ternary,
    ternary_attention,
)
from bitgnn.ops.reference.table import OPERATORS

__all__ = [
    "OPERATORS",
    "auxiliary",
    "bit_pool",
    "bits_linear",
    "bmm",
    "bspmm",
    "conv",
    "first_layers",
    "layouts",
    "linear_chain",
    "looked_up",
    "pack",
    "pairs",
    "quantise",
    "sampling",
    "table",
    "ternary",
    "ternary_attention",
]
