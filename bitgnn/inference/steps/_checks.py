"""Checks that kinds of steps share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bitgnn.inference.program import Register, Step

__all__ = ["expect", "expect_attributes", "expect_tensors", "positive"]


def expect(registers: Sequence[Register], *forms: str) -> None:
    """Require the registers read to hold these forms, in this order."""
    found = tuple(register.form for register in registers)
    if found != forms:
        raise ValueError(f"inputs must be {list(forms)}, got {list(found)}")


def expect_attributes(step: Step, **kinds: type | tuple[type, ...]) -> dict[str, Any]:
    """Require the attributes to be these and of these types; the attributes."""
    if step.attributes.keys() != kinds.keys():
        raise ValueError(
            f"attributes must be {sorted(kinds)}, got {sorted(step.attributes.keys())}"
        )
    for name, kind in kinds.items():
        value = step.attributes[name]
        allowed = kind if isinstance(kind, tuple) else (kind,)
        # bool is an int to isinstance, but no size.
        if type(value) not in allowed:
            raise ValueError(f"attribute {name!r} must be {kind}, got {value!r}")
    return dict(step.attributes)


def positive(name: str, value: int) -> int:
    """Require a size of at least 1."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value


def expect_tensors(
    tensors: Mapping[str, Tensor],
    vectors: Mapping[str, int | None],
    dtypes: Mapping[str, torch.dtype] | None = None,
    required: Sequence[str] = (),
) -> None:
    """Require vectors of these lengths (None: any), float32 unless ``dtypes`` says otherwise."""
    unknown = sorted(tensors.keys() - vectors.keys())
    missing = sorted(set(required) - tensors.keys())
    if unknown or missing:
        raise ValueError(f"tensors {unknown} are unknown, {missing} are missing")
    for name, tensor in tensors.items():
        dtype = (dtypes or {}).get(name, torch.float32)
        size = vectors[name]
        if tensor.dtype != dtype or tensor.dim() != 1 or size not in (None, tensor.size(0)):
            raise ValueError(
                f"{name} must be {dtype} [{size}], got {tensor.dtype} {list(tensor.shape)}"
            )
