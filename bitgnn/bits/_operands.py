"""Checks shared by the packed tensors: row indices, scales and thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitgnn._checks import name_type

_INDICES = (torch.int64, torch.int32)


def rows_index(name: str, index: Any, rows: int, device: torch.device) -> int | Tensor:
    """An integer, a mask ``[rows]`` or a list of rows in the form that indexes a tensor.

    Negative integers count from the end.
    """
    if isinstance(index, int | np.integer) and not isinstance(index, bool):
        if not -rows <= index < rows:
            raise IndexError(f"{name}: index must be within {rows} rows, got {index}")
        return int(index)
    if isinstance(index, list | range | np.ndarray):
        index = torch.as_tensor(index if len(index) else torch.empty(0, dtype=torch.int64))
    if not isinstance(index, Tensor) or index.dtype not in (*_INDICES, torch.bool):
        raise TypeError(f"{name}: index must hold int64, int32 or bool, got {name_type(index)}")
    if index.dtype == torch.bool:
        if tuple(index.shape) != (rows,):
            raise ValueError(f"{name}: a mask must have shape [{rows}], got {list(index.shape)}")
    elif index.dim() == 0:
        return rows_index(name, int(index), rows, device)
    else:
        check_index(name, index, rows, index.device, from_end=True)
    if index.device not in (device, torch.device("cpu")):
        raise ValueError(f"{name}: index must be on {device}, got {index.device}")
    return index if index.dtype == torch.bool else index.to(device)


def check_index(
    name: str, index: Tensor, rows: int, device: torch.device, from_end: bool = False
) -> None:
    """Require integers ``[R]`` on a device that name rows; a GPU's memory is not waited for."""
    if not isinstance(index, Tensor) or index.dtype not in _INDICES:
        raise TypeError(f"{name}: index must be an int64 or int32 tensor, got {name_type(index)}")
    if index.dim() != 1:
        raise ValueError(f"{name}: index must have shape [R], got {list(index.shape)}")
    if index.device != device:
        raise ValueError(f"{name}: index must be on {device}, got {index.device}")
    if type(index) is Tensor and index.device.type == "cpu" and len(index):
        low, high = (int(end) for end in torch.aminmax(index))
        if low < (-rows if from_end else 0) or high >= rows:
            wrong = high if high >= rows else low
            raise IndexError(f"{name}: index must be within {rows} rows, got {wrong}")


def check_scale(
    owner: str, name: str, scale: Any, size: int, device: torch.device, like: str = ""
) -> None:
    """Require float32 ``[size]`` on a device."""
    if not isinstance(scale, Tensor) or scale.dtype != torch.float32:
        raise TypeError(f"{owner}: {name} must be a float32 tensor, got {name_type(scale)}")
    if scale.dim() != 1 or scale.size(0) != size:
        raise ValueError(f"{owner}: {name} must have shape [{size}]{like}, got {list(scale.shape)}")
    if scale.device != device:
        raise ValueError(f"{owner}: {name} must be on {device}, got {scale.device}")


def check_binarised(
    function: str, x: Tensor, features: str, threshold: Tensor | None, check_finite: bool
) -> None:
    """Require a threshold for each of ``x.size(1)`` features, and finite ``x`` if asked."""
    if threshold is not None:
        check_scale(function, "threshold", threshold, x.size(1), x.device, f" like x's {features}")
    if check_finite and not bool(torch.isfinite(x).all()):
        raise ValueError(f"{function}: x must be finite, got NaN or infinity")
