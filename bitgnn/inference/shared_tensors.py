"""Tensors that stand under several names of a state: a file holds each of them once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

__all__ = ["each_once", "under_all_names"]


def each_once(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors by their first names, and which first name stands for each further one."""
    kept: dict[str, Tensor] = {}
    shared: dict[str, str] = {}
    first: dict[tuple[Any, ...], str] = {}
    for name, tensor in state.items():
        key = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        if tensor.numel() and key in first:
            shared[name] = first[key]
        else:
            first[key] = name
            kept[name] = tensor
    return kept, shared


def under_all_names(tensors: Mapping[str, Tensor], shared: Mapping[str, str]) -> dict[str, Tensor]:
    """The inverse of :func:`each_once`.

    Raises:
        KeyError: a name stands for one that is not there.
    """
    return {**tensors, **{name: tensors[other] for name, other in shared.items()}}
