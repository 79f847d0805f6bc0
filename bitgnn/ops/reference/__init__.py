"""Reference of every operator in plain PyTorch: the oracle that compiled kernels must equal.

``OPERATORS`` maps an operator's name to its function, whose signature is the operator's schema.
Bits and integers of compiled kernels equal these exactly. Nothing here is tuned for speed.
"""

from collections.abc import Callable
from typing import Any

from bitgnn.ops.reference.auxiliary import (
    add_bbb,
    add_bbf,
    add_ffb,
    concat_bbb,
    concat_bbf,
    concat_ffb,
)
from bitgnn.ops.reference.bit_pool import pool_bits
from bitgnn.ops.reference.bits_linear import bits_linear
from bitgnn.ops.reference.bmm import (
    bmm_bbb,
    bmm_bbf,
    bmm_bfb,
    bmm_bff,
    bmm_fbb,
    bmm_fbf,
    bmm_ffb,
)
from bitgnn.ops.reference.bspmm import (
    bspmm_bbb,
    bspmm_bbb_frdc,
    bspmm_bbb_sliced,
    bspmm_bbf,
    bspmm_bbf_frdc,
    bspmm_bbf_sliced,
    bspmm_bfb,
    bspmm_bff,
    bspmm_fbb,
    bspmm_fbf,
    bspmm_ffb,
    bspmm_fff,
    bspmm_tbb,
    bspmm_tbf,
)
from bitgnn.ops.reference.conv import conv_bbb, conv_bbf, pack_images
from bitgnn.ops.reference.conv_add import conv_add
from bitgnn.ops.reference.fixed_conv import conv_fbb, conv_fbf
from bitgnn.ops.reference.fused import bmm_add, bmm_bspmm
from bitgnn.ops.reference.joint import bspmm_bmm, bspmm_bmm_sliced
from bitgnn.ops.reference.linear_chain import linear_chain
from bitgnn.ops.reference.narrow import bmm_bspmm_narrow
from bitgnn.ops.reference.pack import (
    pack,
    pack_levels,
    pack_scaled,
    pack_standardized,
    transpose_bits,
    unpack,
)
from bitgnn.ops.reference.patches import pack_patches
from bitgnn.ops.reference.quantise import clip_gradients, round_levels, shift_signs
from bitgnn.ops.reference.slots import bspmm_slots
from bitgnn.ops.reference.ternary import (
    bmm_tbb,
    bmm_tbf,
    linear_ternary,
    pack_bool,
    pack_ternary,
    pack_ternary_columns,
)
from bitgnn.ops.reference.ternary_attention import (
    attention_ternary,
    attention_ternary_floats,
    matmul_btf,
    matmul_ttf,
)

__all__ = [
    "OPERATORS",
    "add_bbb",
    "add_bbf",
    "add_ffb",
    "attention_ternary",
    "attention_ternary_floats",
    "bits_linear",
    "bmm_add",
    "bmm_bbb",
    "bmm_bbf",
    "bmm_bfb",
    "bmm_bff",
    "bmm_bspmm",
    "bmm_bspmm_narrow",
    "bmm_fbb",
    "bmm_fbf",
    "bmm_ffb",
    "bmm_tbb",
    "bmm_tbf",
    "bspmm_bbb",
    "bspmm_bbb_frdc",
    "bspmm_bbb_sliced",
    "bspmm_bbf",
    "bspmm_bbf_frdc",
    "bspmm_bbf_sliced",
    "bspmm_bfb",
    "bspmm_bff",
    "bspmm_bmm",
    "bspmm_bmm_sliced",
    "bspmm_fbb",
    "bspmm_fbf",
    "bspmm_ffb",
    "bspmm_fff",
    "bspmm_slots",
    "bspmm_tbb",
    "bspmm_tbf",
    "clip_gradients",
    "concat_bbb",
    "concat_bbf",
    "concat_ffb",
    "conv_add",
    "conv_bbb",
    "conv_bbf",
    "conv_fbb",
    "conv_fbf",
    "linear_chain",
    "linear_ternary",
    "matmul_btf",
    "matmul_ttf",
    "pack",
    "pack_bool",
    "pack_images",
    "pack_levels",
    "pack_patches",
    "pack_scaled",
    "pack_standardized",
    "pack_ternary",
    "pack_ternary_columns",
    "pool_bits",
    "round_levels",
    "shift_signs",
    "transpose_bits",
    "unpack",
]

OPERATORS: dict[str, Callable[..., Any]] = {
    name: globals()[name] for name in __all__ if name != "OPERATORS"
}
"""Operators for every device."""
