"""Sign, levels, row scale, fixed point, binary maps and convolutions, with surrogate gradients."""

from bitgnn.quantize.conv import binary_conv2d
from bitgnn.quantize.dropout import fast_dropout
from bitgnn.quantize.fixed import fixed_conv2d, fixed_linear, fixed_point
from bitgnn.quantize.levels import boolean, levels, ternary
from bitgnn.quantize.linear import WeightGradient, binary_linear
from bitgnn.quantize.pixels import grey, local_binary_patterns
from bitgnn.quantize.scale import canonical_row_scale, row_scale
from bitgnn.quantize.shifted_sign import shifted_sign
from bitgnn.quantize.sign import Surrogate, binary_sign, sgn, surrogate_slope

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
