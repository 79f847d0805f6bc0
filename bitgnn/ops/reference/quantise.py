"""Reference of rounding activations and weights in training, and of its gradients."""

import math

import torch
from torch import Tensor

from bitgnn.ops.reference.table import operator

MOST_LEVEL = 2**24
"""Every integer up to here is a float32."""


def _check_floats(tensor: Tensor, name: str) -> None:
    if tensor.dtype != torch.float32:
        raise TypeError(f"{name} must be float32, got {tensor.dtype}")


def _check_number(op: str, name: str, number: Tensor) -> None:
    _check_floats(number, f"{op}: {name}")
    if number.dim() != 0:
        raise ValueError(f"{op}: {name} must have 0 dimensions, got {number.dim()}")


def _check(op: str, x: Tensor, scale: Tensor, lowest: int, highest: int) -> None:
    _check_floats(x, f"{op}: x")
    _check_number(op, "scale", scale)
    if not 1 <= highest <= MOST_LEVEL:
        raise ValueError(f"{op}: highest must be in [1, {MOST_LEVEL}], got {highest}")
    if not -MOST_LEVEL <= lowest <= 0:
        raise ValueError(f"{op}: lowest must be in [{-MOST_LEVEL}, 0], got {lowest}")


def _floats_like(x: Tensor) -> Tensor:
    return x.new_empty(x.shape, dtype=torch.float32)


@operator("", _floats_like)
def round_levels(x: Tensor, scale: Tensor, lowest: int, highest: int) -> Tensor:
    """``x / scale`` rounded to integers in [lowest, highest], halves up; 0 for NaN.

    With ``highest`` 1 decided as packing does, where a quotient could round to the half.
    """
    _check("round_levels", x, scale, lowest, highest)
    x = x.contiguous()
    if highest == 1:
        half = 0.5 * scale
        above = (x >= half).float()
        return above if lowest == 0 else above - (x < -half).float()
    return torch.floor(x / scale + 0.5).nan_to_num(nan=0.0).clamp(lowest, highest)


@operator("", lambda x: (_floats_like(x), x.new_empty((), dtype=torch.float32)))
def clip_gradients(
    grad: Tensor,
    x: Tensor,
    scale: Tensor,
    lowest: int,
    highest: int,
    gain: Tensor | None = None,
    sign: bool = False,
) -> tuple[Tensor, Tensor]:
    """Gradients of ``clip(x / scale, lowest, highest)`` in x and in the scale, a float64 sum.

    With ``gain`` they are LSQ's, of ``gain * scale * q`` whose gradient ``grad`` is: q is what
    :func:`round_levels` gives, or with ``sign`` the sign of x, which is 1 where x is 0.
    """
    _check("clip_gradients", x, scale, lowest, highest)
    _check_floats(grad, "clip_gradients: grad")
    if grad.shape != x.shape:
        raise ValueError(f"clip_gradients: grad must have the shape of x, got {list(grad.shape)}")
    v = x / scale
    inside = (v >= lowest) & (v <= highest)
    if gain is None:
        passed = torch.where(inside, grad, 0.0) / scale
        terms = passed * torch.where(inside, v, 0.0)
        return passed.contiguous(), -terms.sum(dtype=torch.float64).float()
    _check_number("clip_gradients", "gain", gain)
    q = torch.where(x >= 0, 1.0, -1.0) if sign else round_levels(x, scale, lowest, highest)
    wide = gain * grad
    passed = torch.where(inside, wide, 0.0)
    terms = wide * q - passed * torch.where(inside, v, 0.0)
    factor = 1.0 / math.sqrt(max(x.numel(), 1) * highest)
    return passed.contiguous(), (terms.sum(dtype=torch.float64) * factor).float()


@operator("", lambda weight: (_floats_like(weight), weight.new_empty((), dtype=torch.float32)))
def shift_signs(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Signs of the weights less their mean, and the mean of what is left, both float64 sums."""
    _check_floats(weight, "shift_signs: weight")
    # Sums in float64 differ by the order of their terms far less than float32 tells: signs and
    # scale are the same on every device and for any number of threads.
    count = max(weight.numel(), 1)
    centred = weight - (weight.sum(dtype=torch.float64) / count).float()
    scale = (centred.abs().sum(dtype=torch.float64) / count).float()
    return torch.where(centred >= 0, 1.0, -1.0).contiguous(), scale


@operator("", lambda grad: _floats_like(grad))
def centre_gradients(grad: Tensor, factor: Tensor) -> Tensor:
    """``(grad - mean(grad)) * factor``, the mean a float64 sum."""
    _check_floats(grad, "centre_gradients: grad")
    _check_number("centre_gradients", "factor", factor)
    mean = (grad.sum(dtype=torch.float64) / max(grad.numel(), 1)).float()
    return ((grad - mean) * factor).contiguous()


@operator("", lambda sums: _floats_like(sums))
def scale_sums(
    sums: Tensor, scale: Tensor, weight_scale: Tensor, bias: Tensor | None = None
) -> Tensor:
    """``(scale * weight_scale) * sums + bias``, each step rounded."""
    _check_floats(sums, "scale_sums: sums")
    if sums.dim() == 0:
        raise ValueError("scale_sums: sums must have a dimension at least, got 0")
    _check_number("scale_sums", "scale", scale)
    _check_number("scale_sums", "weight_scale", weight_scale)
    out = (scale * weight_scale) * sums
    if bias is None:
        return out.contiguous()
    _check_floats(bias, "scale_sums: bias")
    if bias.shape != sums.shape[-1:]:
        raise ValueError(
            f"scale_sums: entries of bias must be {sums.size(-1)}, got {list(bias.shape)}"
        )
    return (out + bias).contiguous()
