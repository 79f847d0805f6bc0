"""Tells whether tensors were written to or replaced since something was derived from them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Watch:
    """Tensors as they are now.

    A write raises a tensor's version and a move of its storage changes its address; what is held
    here keeps its address from being given to another tensor. Tensors made in inference mode keep
    no count of writes: see :func:`counted`.

    Args:
        tensors: what to watch; None stands for a tensor that is not there.
    """

    __slots__ = ("_places", "_tensors", "_versions")

    def __init__(self, tensors: Iterable[Tensor | None]) -> None:
        self._tensors = tuple(tensors)
        self._places = _places(self._tensors)
        self._versions = _versions(self._tensors)

    def unchanged(self, tensors: Iterable[Tensor | None] | None = None) -> bool:
        """Whether ``tensors`` are those watched, and nothing wrote to them since.

        Args:
            tensors: what is in their place now; None for the tensors themselves.
        """
        held = self._tensors
        if tensors is not None:
            now = tuple(tensors)
            if len(now) != len(held) or any(a is not b for a, b in zip(now, held, strict=True)):
                return False
        return _versions(held) == self._versions and _places(held) == self._places


def counted(tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy where it was made in inference mode: the copy counts writes."""
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()


def _places(tensors: tuple[Tensor | None, ...]) -> list[int]:
    return [0 if t is None else t.data_ptr() for t in tensors]


def _versions(tensors: tuple[Tensor | None, ...]) -> list[int]:
    return [0 if t is None or t.is_inference() else t._version for t in tensors]
