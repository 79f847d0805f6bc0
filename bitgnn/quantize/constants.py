"""Vectors of one value, made once: a forward reads many of them."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["filled"]

MOST = 256
"""Vectors that are kept at most."""

_kept: dict[tuple[int, float, torch.device], Tensor] = {}


def filled(size: int, value: float, like: Tensor) -> Tensor:
    """Float32 ``[size]`` of one value, for reading alone.

    Args:
        size: number of entries.
        value: of each entry.
        like: tensor on the device in question; what a compiler traces or a CUDA graph captures
            gets a vector of its own.
    """
    is_traced = torch.compiler.is_compiling() or type(like) is not Tensor
    if is_traced or (like.is_cuda and torch.cuda.is_current_stream_capturing()):
        return torch.full((size,), value, device=like.device)
    key = (size, value, like.device)
    found = _kept.get(key)
    if found is None:
        if len(_kept) >= MOST:
            _kept.clear()
        with torch.inference_mode(False):
            found = torch.full((size,), value, device=like.device)
        _kept[key] = found
    return found
