"""Indices of rows in the forms that PyTorch takes, checked before anything is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type

_INDICES = (torch.int64, torch.int32)


def rows_index(name: str, index: Any, rows: int, device: torch.device) -> int | Tensor:
    """An integer, mask or list of rows in the form that indexes a tensor.

    Args:
        name: of the call, for messages.
        index: integer, boolean mask ``[rows]``, or integers ``[R]``, as tensor, array or list;
            negative ones count from the end.
        rows: number of rows.
        device: of the rows.

    Raises:
        TypeError: it is something else.
        ValueError: it has another shape or device.
        IndexError: a row does not exist.
    """
    if isinstance(index, int | np.integer) and not isinstance(index, bool):
        if not -rows <= index < rows:
            raise IndexError(f"{name}: index must be within {rows} rows, got {index}")
        return int(index)
    if isinstance(index, list | range | np.ndarray):
        index = torch.as_tensor(index if len(index) else torch.empty(0, dtype=torch.int64))
    check_type(
        isinstance(index, Tensor) and index.dtype in (*_INDICES, torch.bool),
        lambda: f"{name}: index must hold int64, int32 or bool, got {name_type(index)}",
    )
    if index.dtype == torch.bool:
        check_value(
            tuple(index.shape) == (rows,),
            lambda: f"{name}: a mask must have shape [{rows}], got {list(index.shape)}",
        )
        check_value(
            index.device in (device, torch.device("cpu")),
            lambda: f"{name}: index must be on {device}, got {index.device}",
        )
        found: Tensor = index
        return found
    if index.dim() == 0:
        return rows_index(name, int(index), rows, device)
    moved = index.to(device) if index.device.type == "cpu" else index
    check_index(name, index, rows, index.device, from_end=True)
    check_value(
        moved.device == device, lambda: f"{name}: index must be on {device}, got {index.device}"
    )
    return moved


def check_index(
    name: str, index: Tensor, rows: int, device: torch.device, from_end: bool = False
) -> None:
    """Require integers ``[R]`` on a device that name rows; a GPU's memory is not waited for.

    Raises:
        TypeError: it is no tensor of integers.
        ValueError: it has another shape or device.
        IndexError: a row does not exist.
    """
    check_type(
        isinstance(index, Tensor) and index.dtype in _INDICES,
        lambda: f"{name}: index must be an int64 or int32 tensor, got {name_type(index)}",
    )
    check_value(
        index.dim() == 1, lambda: f"{name}: index must have shape [R], got {list(index.shape)}"
    )
    check_value(
        index.device == device, lambda: f"{name}: index must be on {device}, got {index.device}"
    )
    if type(index) is Tensor and index.device.type == "cpu" and len(index):
        low, high = (int(end) for end in torch.aminmax(index))
        if low < (-rows if from_end else 0) or high >= rows:
            wrong = high if high >= rows else low
            raise IndexError(f"{name}: index must be within {rows} rows, got {wrong}")
