"""Small constant tensors, made once: a forward reads many of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

__all__ = ["filled", "made_once"]

MOST = 256
"""Tensors that are kept at most."""

_kept: dict[Hashable, Tensor] = {}


def made_once(key: Hashable, like: Tensor, make: Callable[[], Tensor]) -> Tensor:
    """Result of ``make()``, for reading alone.

    Args:
        key: what it depends on beside the device.
        like: tensor on the device in question; what a compiler traces or a CUDA graph captures
            gets a tensor of its own.
        make: called without gradients.
    """
    is_traced = torch.compiler.is_compiling() or type(like) is not Tensor
    if is_traced or (like.is_cuda and torch.cuda.is_current_stream_capturing()):
        return make()
    found = _kept.get((key, like.device))
    if found is None:
        if len(_kept) >= MOST:
            _kept.clear()
        with torch.inference_mode(False), torch.no_grad():
            found = make()
        _kept[key, like.device] = found
    return found


def filled(size: int, value: float, like: Tensor) -> Tensor:
    """Float32 ``[size]`` of one value on the device of ``like``, for reading alone."""
    device = like.device
    return made_once((size, value), like, lambda: torch.full((size,), value, device=device))
