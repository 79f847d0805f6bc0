"""Scale and shift of a product with looked-up bits, behind its gain and its norm."""

from __future__ import annotations

import torch
from torch import Tensor

from bitgnn.quantize.sign import sgn

__all__ = ["output_affine"]


def output_affine(
    weight: Tensor,
    unit: Tensor,
    zero_one: bool,
    offset: Tensor | None,
    output_gain: Tensor | None = None,
    norm: torch.nn.BatchNorm1d | None = None,
    bit_gain: Tensor | float | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Scale and shift with which ``scale * dot + shift`` is the product, behind gain and norm.

    ``dot`` is the product of -1/+1 bits. With the unit :math:`u` that of -1/+1 bits and offsets is
    :math:`u (dot + \sum_k \mathrm{sgn}(W_{ok}) c_k)`; that of 0/1 bits and offsets is
    :math:`\tfrac{u}{2}(dot + \sum_k \mathrm{sgn}(W_{ok}) (1 + 2 c_k))`.
    Gain and batch norm, in evaluation, multiply both and shift. Trained layers in evaluation and
    frozen ones use the same two vectors, so that their results agree to the last bit.

    Args:
        weight: ``[M, B]`` latent weights.
        unit: scalar tensor u.
        zero_one: what the bits stand for.
        offset: float32 ``[B]``, c, or None.
        output_gain: ``[1]`` tensor that multiplies the product, or None.
        norm: in evaluation, with running statistics, or None.
        bit_gain: number or scalar tensor that multiplies the bits, not their offsets, in training.

    Returns:
        Both float32 ``[M]``.
    """
    scale = unit.float().expand(weight.size(0))
    if output_gain is not None:
        scale = scale * output_gain.detach().float()
    shift = scale * _offset_sums(weight, zero_one, offset, bit_gain)
    if zero_one:
        scale = scale * 0.5
    if bit_gain is not None:
        scale = scale * bit_gain
    if norm is not None:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        gain = torch.rsqrt(norm.running_var.float() + norm.eps)
        if norm.weight is not None:
            gain = gain * norm.weight.detach().float()
        centre = norm.running_mean.float()
        shift = (shift - centre) * gain
        if norm.bias is not None:
            shift = shift + norm.bias.detach().float()
        scale = scale * gain
    return scale.contiguous(), shift


def _offset_sums(
    weight: Tensor, zero_one: bool, offset: Tensor | None, bit_gain: Tensor | float | None
) -> Tensor:
    """``[M]`` sums of weights' signs times what is added to bits, or to halves of signs."""
    if offset is None and not zero_one:
        return weight.new_zeros(weight.size(0), dtype=torch.float32)
    added = weight.new_zeros(weight.size(1), dtype=torch.float64)
    if zero_one:
        added += 0.5 if bit_gain is None else 0.5 * bit_gain
    if offset is not None:
        added += offset
    # Offsets are multiples of a power of two: the sums are exact in any order.
    return torch.mv(sgn(weight.detach()).double(), added).float()
