"""What frozen BWTA layers share: tensors that keep their types, and a description of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bitgnn._checks import check_value

__all__ = ["FrozenBWTALayer", "checked_scale"]


class FrozenBWTALayer(nn.Module):
    """A layer with buffers alone, which move between devices but keep their types.

    ``model.half()`` must not round scales that decide bits.

    Attributes:
        kind: name of the layer's form in checkpoints.
    """

    kind: str

    def description(self) -> dict[str, Any]:
        """Arguments of ``from_tensors`` beside the tensors, as plain values."""
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FrozenBWTALayer:
        types = {name: b.dtype for name, b in self._buffers.items() if b is not None}
        before = {name: self._buffers[name] for name in types}
        super()._apply(fn, recurse)
        for name, dtype in types.items():
            moved, kept = self._buffers[name], before[name]
            if moved is not None and kept is not None and moved.dtype != dtype:
                self._buffers[name] = kept.to(moved.device)
        return self


def checked_scale(tensors: dict[str, Tensor], name: str, layer: str) -> Tensor:
    """The 0-d float32 scale of that name.

    Raises:
        ValueError: it is missing, of another form, or not positive and finite.
    """
    scale = tensors.get(name)
    check_value(
        scale is not None and scale.dim() == 0 and scale.dtype == torch.float32,
        lambda: f"{layer}: {name} must be a 0-d float32 tensor",
    )
    assert scale is not None
    check_value(
        bool(scale > 0) and bool(scale.isfinite()),
        lambda: f"{layer}: {name} must be positive and finite, got {float(scale)}",
    )
    return scale
