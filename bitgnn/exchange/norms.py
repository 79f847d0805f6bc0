"""Batch norms as thresholds or as scale and bias, and back."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitgnn.inference.threshold_folding import sign_threshold

__all__ = ["Norm", "affine_of", "can_hold", "set_affine", "set_threshold", "threshold_of"]

Norm = nn.BatchNorm1d | nn.BatchNorm2d

FAR = 2.0**90
_SIDE = 2
"""Rows and columns of the images that norms are evaluated on, which take the loops of images."""


def _evaluated(norm: Norm) -> Callable[[Tensor], Tensor]:
    """The norm in evaluation on channels ``[1, C]``, with its own arithmetic."""

    def on_channels(v: Tensor) -> Tensor:
        x = v.to(_statistics(norm)[0].dtype)
        if isinstance(norm, nn.BatchNorm2d):
            x = x[:, :, None, None].expand(-1, -1, _SIDE, _SIDE)
            x = x.contiguous(memory_format=torch.channels_last)
        x = functional.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps
        )
        return (x[:, :, 0, 0] if x.dim() == 4 else x).float()

    return on_channels


def _statistics(norm: Norm) -> tuple[Tensor, Tensor]:
    """Running mean and variance.

    Raises:
        ValueError: the norm keeps none.
    """
    if norm.running_mean is None or norm.running_var is None:
        raise ValueError("its norm keeps no running statistics; evaluation would depend on batches")
    return norm.running_mean, norm.running_var


@torch.no_grad()
def threshold_of(norm: Norm) -> dict[str, Tensor]:
    """``threshold`` float32 ``[C]`` and ``turned`` bool ``[C]`` of the signs behind a norm.

    ``norm(v) >= 0`` just where ``(v >= threshold) ^ turned``, rounding included.
    """
    mean, _ = _statistics(norm)
    threshold, turned = sign_threshold(_evaluated(norm), norm.num_features, mean.device)
    return {"threshold": threshold, "turned": turned}


@torch.no_grad()
def affine_of(norm: Norm) -> dict[str, Tensor]:
    """``scale`` and ``bias`` float32 ``[C]``: the norm gives ``scale * v + bias``.

    Read off the norm's own arithmetic: its value at 0, and at a power of two that drowns the bias.
    """
    mean, _ = _statistics(norm)
    evaluated = _evaluated(norm)
    zero = torch.zeros(1, norm.num_features, device=mean.device)
    return {
        "scale": (evaluated(zero + FAR) / FAR).squeeze(0),
        "bias": evaluated(zero).squeeze(0),
    }


@torch.no_grad()
def set_threshold(norm: Norm, threshold: Tensor, turned: Tensor) -> None:
    """Make ``norm(v) >= 0`` just where ``(v >= threshold) ^ turned``.

    Its gain becomes 1 or -1, and the difference of two floats has an exact sign. Where the
    comparison is turned, ``v < t`` is ``v <= t'`` for the float ``t'`` below ``t``.
    """
    below = torch.nextafter(threshold, torch.full_like(threshold, -torch.inf))
    mean = torch.where(turned, below, threshold)
    gain = torch.where(turned, -1.0, 1.0)
    _set(norm, mean, gain, torch.zeros_like(gain))


@torch.no_grad()
def set_affine(norm: Norm, scale: Tensor, bias: Tensor) -> None:
    """Make the norm give ``scale * v + bias``."""
    _set(norm, torch.zeros_like(scale), scale, bias)


def can_hold(norm: Norm) -> bool:
    """Whether a norm has what a threshold, or scale and bias, are written into."""
    if norm.weight is None or norm.bias is None or norm.running_var is None:
        return False
    return bool((torch.sqrt(_unit_variance(norm) + norm.eps) == 1).all())


def _unit_variance(norm: Norm) -> Tensor:
    """The variance that makes the standard deviation 1 to the bit."""
    _, variance = _statistics(norm)
    return torch.full_like(variance, 1 - norm.eps)


def _set(norm: Norm, mean: Tensor, gain: Tensor, bias: Tensor) -> None:
    """Give a norm that can hold them a mean, gain and bias."""
    running_mean, running_var = _statistics(norm)
    running_mean.copy_(mean)
    running_var.copy_(_unit_variance(norm))
    norm.weight.copy_(gain)
    norm.bias.copy_(bias)
