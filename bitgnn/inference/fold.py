"""Folds an input batch norm into thresholds and gains that give the same signs exactly."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["fold_batch_norm"]

SIGN_BIT = -(2**31)
# Bit patterns of -inf and +inf in the ordering below; the answer always lies between them.
BISECTION_STEPS = 32


def _ordered_to_float(key: Tensor) -> Tensor:
    """Floats in ascending order for ascending int64 keys: the IEEE bits, negatives turned round."""
    bits = torch.where(key >= 0, key, SIGN_BIT - key - 1)
    return bits.to(torch.int32).view(torch.float32)


def fold_batch_norm(norm: nn.BatchNorm1d, in_channels: int) -> tuple[Tensor, Tensor]:
    """Per-feature threshold and gain of ``sgn(norm(x))`` and ``|norm(x)|`` in evaluation.

    Batch norm rises with ``x``, so its sign is one comparison. The smallest float ``t`` with
    ``norm(t) >= 0`` is found by bisection over the floats with the module's own arithmetic:
    ``x >= t`` is then the module's decision for every float ``x``, rounding included.

    Args:
        norm: batch norm without affine parameters.
        in_channels: number of features.

    Returns:
        threshold ``[in_channels]`` and gain ``1 / sqrt(var + eps)`` ``[in_channels]``, float32.

    Raises:
        ValueError: ``norm`` has affine parameters, keeps no statistics, or is of another width.
    """
    mean, var = norm.running_mean, norm.running_var
    if norm.affine or mean is None or var is None:
        raise ValueError(
            "freeze: the input batch norm must have running statistics and affine=False"
        )
    if norm.num_features != in_channels:
        raise ValueError(
            f"freeze: the input batch norm has {norm.num_features} features, "
            f"the first layer {in_channels}"
        )
    infinity = torch.tensor(float("inf")).view(torch.int32).item()
    low = torch.full((in_channels,), -int(infinity) - 1, dtype=torch.int64, device=mean.device)
    high = torch.full((in_channels,), int(infinity), dtype=torch.int64, device=mean.device)
    was_training = norm.training
    norm.eval()
    with torch.no_grad():
        for _ in range(BISECTION_STEPS):
            # Invariant: norm(low) < 0 <= norm(high). Floor division keeps middle below high.
            middle = torch.div(low + high, 2, rounding_mode="floor")
            value = norm(_ordered_to_float(middle).unsqueeze(0)).squeeze(0)
            high = torch.where(value >= 0, middle, high)
            low = torch.where(value >= 0, low, middle)
    norm.train(was_training)
    gain = torch.rsqrt(var.float() + norm.eps)
    return _ordered_to_float(high).contiguous(), gain.contiguous()
