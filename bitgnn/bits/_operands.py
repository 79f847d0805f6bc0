"""Words, scale and checks that packed tensors and packed images have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.bits.rows import PackedRows

if TYPE_CHECKING:
    from typing_extensions import Self


class PackedSigns(PackedRows):
    """Base of packed +-1 values: words, a count of features and an optional scale.

    Attributes:
        words: int32, features packed along the last dimension.
        scale: float32, one for each entry of the first dimension, or None.
    """

    COUNT: ClassVar[str]
    """Name of the attribute with the number of features."""

    @classmethod
    def _trusted(cls, words: Any, count: Any, scale: Any = None) -> Self:
        """Values without checks, for results of operators."""
        self = object.__new__(cls)
        self.words = words
        setattr(self, cls.COUNT, count)
        self.scale = scale
        return self

    @classmethod
    def _made(cls, words: Tensor, count: int, scale: Tensor | None = None) -> Self:
        """Values without checks, of the kind that is cut, copied or moved."""
        return cls._trusted(words, count, scale)

    def _state(self) -> tuple[Any, ...]:
        return self.words, getattr(self, self.COUNT), self.scale

    @classmethod
    def _rebuilt(cls, words: Any, count: Any, scale: Any = None) -> Self:
        if isinstance(words, Tensor) and words.dim() == cls.ROW_DIMS:
            scale = scale.unsqueeze(0) if isinstance(scale, Tensor) else scale
            return cls._rebuilt(words.unsqueeze(0), count, scale)[0]
        return cls(words, count, scale)  # type: ignore[call-arg]

    def _mapped(self, f: Callable[[Tensor], Tensor], by_row: bool = False) -> Self:
        scale = None if self.scale is None else f(self.scale)
        return self._made(f(self.words), getattr(self, self.COUNT), scale)

    @classmethod
    def _joined(cls, name: str, parts: list[Any], join: Callable[[list[Tensor]], Tensor]) -> Self:
        first = parts[0]
        check_value(
            len({part.scale is None for part in parts}) == 1,
            lambda: f"{name}: all tensors must have a scale or none of them, got both",
        )
        scale = None if first.scale is None else join([part.scale for part in parts])
        words = join([part.words for part in parts])
        return cls._made(words, getattr(first, cls.COUNT), scale)


def check_packed(owner: str, words: Tensor, name: str, count: int) -> None:
    """Words are int32 and ``count``, named ``name``, is an int.

    Raises:
        TypeError: one of them is not.
    """
    check_type(
        isinstance(words, Tensor)
        and words.dtype == torch.int32
        and not isinstance(words, PackedRows),
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
