"""What packed tensors and packed images have in common: checks, device moves, pytrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["PackedSigns", "check_packed", "check_scale", "check_threshold"]


class PackedSigns:
    """Base of packed +-1 values: words, a count of features and an optional scale.

    Attributes:
        words: int32, features packed along the last dimension.
        scale: float32, one for each entry of the first dimension, or None.
    """

    COUNT: ClassVar[str]
    """Name of the attribute with the number of features."""

    words: Tensor
    scale: Tensor | None

    @classmethod
    def _trusted(cls, words: Any, count: Any, scale: Any = None) -> Self:
        """Values without checks, for results of operators."""
        self = object.__new__(cls)
        self.words = words
        setattr(self, cls.COUNT, count)
        self.scale = scale
        return self

    @property
    def device(self) -> torch.device:
        """Device of the words."""
        return self.words.device

    @property
    def nbytes(self) -> int:
        """Bytes of words and scale."""
        return self.words.nbytes + (0 if self.scale is None else self.scale.nbytes)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """The same bits on another device."""
        scale = None if self.scale is None else self.scale.to(device, non_blocking=non_blocking)
        words = self.words.to(device, non_blocking=non_blocking)
        return self._trusted(words, getattr(self, self.COUNT), scale)


def check_packed(owner: str, words: Tensor, name: str, count: int) -> None:
    """Words are int32 and ``count``, named ``name``, is an int.

    Raises:
        TypeError: one of them is not.
    """
    check_type(
        isinstance(words, Tensor) and words.dtype == torch.int32,
        lambda: f"{owner}: words must be an int32 tensor, got {name_type(words)}",
    )
    check_type(
        not isinstance(count, bool) and isinstance(count, int | torch.SymInt),
        lambda: f"{owner}: {name} must be an int, got {name_type(count)}",
    )


def check_scale(owner: str, scale: Tensor, words: Tensor) -> None:
    """A scale is float32, one for each row or image of ``words``, and on their device.

    Raises:
        TypeError: it has another dtype.
        ValueError: it has another shape or device.
    """
    check_type(
        isinstance(scale, Tensor) and scale.dtype == torch.float32,
        lambda: f"{owner}: scale must be a float32 tensor, got {name_type(scale)}",
    )
    check_value(
        scale.dim() == 1 and scale.size(0) == words.size(0),
        lambda: f"{owner}: scale must have shape [{words.size(0)}], got {list(scale.shape)}",
    )
    check_value(
        scale.device == words.device,
        lambda: f"{owner}: scale must be on {words.device}, got {scale.device}",
    )


def check_threshold(function: str, threshold: Tensor, x: Tensor, features: str) -> None:
    """A threshold is float32, one for each of the ``features`` (``x.size(1)``), on ``x``'s device.

    Raises:
        TypeError: it has another dtype.
        ValueError: it has another shape or device.
    """
    check_type(
        isinstance(threshold, Tensor) and threshold.dtype == torch.float32,
        lambda: f"{function}: threshold must be a float32 tensor, got {name_type(threshold)}",
    )
    check_value(
        threshold.dim() == 1 and threshold.size(0) == x.size(1),
        lambda: (
            f"{function}: threshold must have shape [{x.size(1)}] like x's {features}, "
            f"got {list(threshold.shape)}"
        ),
    )
    check_value(
        threshold.device == x.device,
        lambda: f"{function}: threshold must be on {x.device}, got {threshold.device}",
    )
