"""Scale and shift of a product of 8-bit rows and weights, behind a norm or gain."""

from __future__ import annotations

import torch
from torch import Tensor

CODES_OF_DEVIATION = 32.0
"""Codes of a feature within one standard deviation."""


def int8_affine(
    row_scale: Tensor, norm: torch.nn.BatchNorm1d | None, output_gain: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    r"""Scale and shift ``[M]`` with which ``scale * dot + shift`` is the product, gain and norm.

    ``dot`` are the integers, ``row_scale`` ``[M]`` is the step of each output's weights. Trained
    layers in evaluation and frozen ones use the same vectors, so that their results agree to the
    last bit. Without a norm there is no shift.
    """
    scale = row_scale.float() / CODES_OF_DEVIATION
    if output_gain is not None:
        scale = scale * output_gain.detach().float()
    if norm is None:
        return scale.contiguous(), None
    assert norm.running_mean is not None
    assert norm.running_var is not None
    gain = torch.rsqrt(norm.running_var.float() + norm.eps)
    if norm.weight is not None:
        gain = gain * norm.weight.detach().float()
    shift = (0.0 - norm.running_mean.float()) * gain
    if norm.bias is not None:
        shift = shift + norm.bias.detach().float()
    return (scale * gain).contiguous(), shift
