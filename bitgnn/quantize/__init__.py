"""Sign, levels, row scale, fixed point, binary maps and convolutions, with surrogate gradients."""

from bitgnn.quantize.dropout import fast_dropout
from bitgnn.quantize.fixed import fixed_conv2d, fixed_linear, fixed_point
from bitgnn.quantize.images import binary_conv2d, grey, local_binary_patterns
from bitgnn.quantize.levels import boolean, levels, ternary
from bitgnn.quantize.linear import WeightGradient, binary_linear
from bitgnn.quantize.sign import (
    Surrogate,
    binary_sign,
    canonical_row_scale,
    row_scale,
    sgn,
    shifted_sign,
    surrogate_slope,
)

__all__ = [
    "Surrogate",
    "WeightGradient",
    "binary_conv2d",
    "binary_linear",
    "binary_sign",
    "boolean",
    "canonical_row_scale",
    "fast_dropout",
    "fixed_conv2d",
    "fixed_linear",
    "fixed_point",
    "grey",
    "levels",
    "local_binary_patterns",
    "row_scale",
    "sgn",
    "shifted_sign",
    "surrogate_slope",
    "ternary",
]
