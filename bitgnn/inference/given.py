"""What callers give a frozen model, as tensors in the form that its steps read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor

from bitgnn.bits import BitAdjacency, BitTensor

__all__ = ["as_features", "as_tensor"]

MATRIX = 2


def as_tensor(value: Any) -> Any:
    """A numpy array as a tensor that shares its memory; anything else as it is."""
    return torch.as_tensor(value) if isinstance(value, np.ndarray) else value


def as_features(x: Any, size: int, ready: Sequence[torch.dtype]) -> Any:
    """Features as dense floats.

    Args:
        x: array, tensor (dense or sparse), or packed bits.
        size: features of a node; 0 for what is no matrix of features, which stays as it is.
        ready: types of numbers that may stay.

    Raises:
        TypeError: ``x`` is none of these.
        ValueError: it is not ``[*, N, size]``.
    """
    if isinstance(x, BitTensor | BitAdjacency):
        if size and len(x.shape) != MATRIX:
            raise ValueError(f"FrozenModel: x must be [N, {size}], got {list(x.shape)}")
        return x
    x = as_tensor(x)
    if isinstance(x, SparseTensor):
        x = x.to_dense()
    if not isinstance(x, Tensor) or x.is_complex():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(
            f"FrozenModel: x must be a tensor of numbers or the result of pack_features, got {got}"
        )
    if not size:
        return x
    if x.layout != torch.strided:
        x = x.to_dense()
    if x.dim() < MATRIX:
        raise ValueError(f"FrozenModel: x must be [N, {size}], got {list(x.shape)}")
    return x if x.dtype in ready else x.float()
