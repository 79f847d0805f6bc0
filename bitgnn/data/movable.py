"""Data classes of tensors that move to a device as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from typing_extensions import Self


class Movable:
    """Base of data classes whose fields are tensors, others like it, or plain values."""

    def to(self, device: torch.device | str) -> Self:
        """All of it on a device."""
        fields: dict[str, Any] = vars(self)
        tensors = {n: f for n, f in fields.items() if isinstance(f, torch.Tensor | Movable)}
        return replace(self, **{n: f.to(device) for n, f in tensors.items()})  # type: ignore[type-var]
