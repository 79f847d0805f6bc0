"""Sign, row scale, the binary linear map and convolution, each with its surrogate gradient."""

from bitgnn.quantize.conv import binary_conv2d
from bitgnn.quantize.dropout import fast_dropout
from bitgnn.quantize.linear import WeightGradient, binary_linear
from bitgnn.quantize.scale import canonical_row_scale, row_scale
from bitgnn.quantize.sign import Surrogate, binary_sign, sgn, surrogate_slope

__all__ = [
    "Surrogate",
    "WeightGradient",
    "binary_conv2d",
    "binary_linear",
    "binary_sign",
    "canonical_row_scale",
    "fast_dropout",
    "row_scale",
    "sgn",
    "surrogate_slope",
]
