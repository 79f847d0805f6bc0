"""Operators on bits: packing, BMM, BSpMM, convolution, 8-bit and ternary products, pairs."""

from bitgnn.ops import (
    add,
    bmm,
    bspmm,
    concat,
    conv,
    fused,
    gat,
    hamming,
    int8,
    linear,
    pack,
    patches,
    reference,
    ternary,
)
from bitgnn.ops._register import register
from bitgnn.ops.buffers import release_buffers

register()

__all__ = [
    "add",
    "bmm",
    "bspmm",
    "concat",
    "conv",
    "fused",
    "gat",
    "hamming",
    "int8",
    "linear",
    "pack",
    "patches",
    "reference",
    "release_buffers",
    "ternary",
]
