"""Checks of the operands that packed tensors and packed images have in common."""

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type

__all__ = ["check_packed", "check_scale", "check_threshold"]


def check_packed(owner: str, words: Tensor, name: str, count: int) -> None:
    """Words are int32 and ``count``, named ``name``, is an int.

    Raises:
        TypeError: one of them is not.
    """
    check_type(
        isinstance(words, Tensor) and words.dtype == torch.int32,
        lambda: f"{owner}: words must be an int32 tensor, got {name_type(words)}",
    )
    check_type(
        not isinstance(count, bool) and isinstance(count, int | torch.SymInt),
        lambda: f"{owner}: {name} must be an int, got {name_type(count)}",
    )


def check_scale(owner: str, scale: Tensor, words: Tensor) -> None:
    """A scale is float32, one for each row or image of ``words``, and on their device.

    Raises:
        TypeError: it has another dtype.
        ValueError: it has another shape or device.
    """
    check_type(
        isinstance(scale, Tensor) and scale.dtype == torch.float32,
        lambda: f"{owner}: scale must be a float32 tensor, got {name_type(scale)}",
    )
    check_value(
        scale.dim() == 1 and scale.size(0) == words.size(0),
        lambda: f"{owner}: scale must have shape [{words.size(0)}], got {list(scale.shape)}",
    )
    check_value(
        scale.device == words.device,
        lambda: f"{owner}: scale must be on {words.device}, got {scale.device}",
    )


def check_threshold(function: str, threshold: Tensor, x: Tensor, features: str) -> None:
    """A threshold is float32, one for each of the ``features`` (``x.size(1)``), on ``x``'s device.

    Raises:
        TypeError: it has another dtype.
        ValueError: it has another shape or device.
    """
    check_type(
        isinstance(threshold, Tensor) and threshold.dtype == torch.float32,
        lambda: f"{function}: threshold must be a float32 tensor, got {name_type(threshold)}",
    )
    check_value(
        threshold.dim() == 1 and threshold.size(0) == x.size(1),
        lambda: (
            f"{function}: threshold must have shape [{x.size(1)}] like x's {features}, "
            f"got {list(threshold.shape)}"
        ),
    )
    check_value(
        threshold.device == x.device,
        lambda: f"{function}: threshold must be on {x.device}, got {threshold.device}",
    )
