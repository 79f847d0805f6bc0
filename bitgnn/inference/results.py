"""Hands results to tensors of the caller's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def hand_out(who: str, result: Any, out: Tensor) -> Tensor:
    """``out`` with the values of ``result``.

    ``out`` may be memory that the features lie in: it is written last.

    Args:
        who: of the caller, for messages.
        result: what was computed.
        out: of the shape, dtype and device of ``result``.

    Raises:
        TypeError: ``out`` or the result is no tensor, or ``out`` has another dtype.
        ValueError: ``out`` has another shape or device.
        RuntimeError: several elements of ``out`` share one place in memory.
    """
    if not isinstance(out, Tensor) or not isinstance(result, Tensor):
        given = "the result" if isinstance(out, Tensor) else "out"
        found = result if isinstance(out, Tensor) else out
        raise TypeError(f"{who}: {given} must be a tensor to use out, got {type(found).__name__}")
    if out.dtype != result.dtype:
        raise TypeError(f"{who}: out must be {result.dtype}, got {out.dtype}")
    if out.shape != result.shape or out.device != result.device:
        raise ValueError(
            f"{who}: out must have shape {list(result.shape)} on {result.device}, got "
            f"{list(out.shape)} on {out.device}"
        )
    if not out.requires_grad:
        return out.copy_(result)
    with torch.no_grad():
        return out.copy_(result)
