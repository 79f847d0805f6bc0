"""TernaryTensor and BooleanTensor: rows of {-1, 0, +1} and {0, 1}, with counts of set bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits import pytrees
from bitgnn.bits.rows import PackedRows
from bitgnn.bits.tensor import WORD_BITS, check_packed, check_padding, held_tensors, words_for

if TYPE_CHECKING:
    from typing_extensions import Self

QUANTISED = (torch.float32, torch.float16, torch.bfloat16)
"""Dtypes that can be made ternary."""


class _CountedRows(PackedRows):
    """Base of ternary and boolean rows: words, set bits of each row, one scale."""

    FIELDS = ("words", "size", "counts", "scale")
    ROW_FIELDS = ("words", "counts")
    ANY_DIMS = True
    PLANES: ClassVar[tuple[int, ...]]
    """Dimensions between the rows and their words."""

    words: Tensor
    size: int
    counts: Tensor
    scale: Tensor | None

    def __init__(
        self, words: Tensor, size: int, counts: Tensor | None = None, scale: Tensor | None = None
    ) -> None:
        owner = self.NAME
        check_packed(owner, words, "size", size)
        shape = [*self.PLANES, words_for(size)]
        inner = self.ROW_DIMS
        if size < 0 or words.dim() < inner or list(words.shape[-inner:]) != shape:
            raise ValueError(
                f"{owner}: words must have shape [..., {', '.join(map(str, shape))}] for size "
                f"{size}, got {list(words.shape)}"
            )
        if counts is None:
            counts = self._count(words, size)
        if not isinstance(counts, Tensor) or counts.dtype != torch.int32:
            raise TypeError(f"{owner}: counts must be an int32 tensor, got {name_type(counts)}")
        rows = words.shape[:-inner]
        if counts.shape != rows or counts.device != words.device:
            raise ValueError(
                f"{owner}: counts must have shape {list(rows)} on {words.device}, "
                f"got {list(counts.shape)} on {counts.device}"
            )
        if scale is not None:
            _check_scale(owner, "scale", scale, words.device)
        self.words = words
        self.size = size
        self.counts = counts
        self.scale = scale

    @classmethod
    def _count(cls, words: Tensor, size: int) -> Tensor:
        """Set bits of each row, int32 ``[...]``."""
        return _bits(words, size).flatten(-cls.ROW_DIMS).sum(-1, dtype=torch.int32)

    @classmethod
    def _trusted(cls, words: Any, size: int, counts: Any, scale: Any = None) -> Self:
        self = object.__new__(cls)
        self.words = words
        self.size = size
        self.counts = counts
        self.scale = scale
        return self

    @classmethod
    def _rebuilt(cls, *state: Any) -> Self:
        return cls(*state).validate()

    @property
    def shape(self) -> tuple[int, ...]:
        """``(..., size)``; no torch.Size, which would fix the sizes of an exported program."""
        return (*self.counts.shape, self.size)

    def validate(self) -> Self:
        """Check padding bits and counts and return self; reads the words.

        Raises:
            ValueError: a padding bit is 1, or the counts are not those of the words.
        """
        check_padding(self.NAME, self.words, self.size, "planes")
        if not torch.equal(self._count(self.words, self.size), self.counts):
            raise ValueError(f"{self.NAME}: counts must be the set bits of each row, got others")
        return self

    def to_tensors(self, prefix: str = "") -> dict[str, Tensor]:
        """Plain tensors under ``prefix``: words, size, counts and scale, for safetensors."""
        tensors = {
            f"{prefix}words": self.words.contiguous(),
            f"{prefix}size": torch.tensor(self.size),
            f"{prefix}counts": self.counts.contiguous(),
        }
        return tensors if self.scale is None else {**tensors, f"{prefix}scale": self.scale}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], prefix: str = "") -> Self:
        """The inverse of :meth:`to_tensors`.

        Raises:
            ValueError: a tensor is missing, shapes do not fit, or bits are not as they must be.
        """
        words, size, counts = held_tensors(cls, tensors, prefix, "words", "size", "counts")
        return cls(words, int(size), counts, tensors.get(f"{prefix}scale")).validate()


class TernaryTensor(_CountedRows):
    """Values in {-1, 0, +1} ``[..., size]`` as two bit planes, with an optional scale for all.

    The planes of a row are adjacent in memory. A bit of the first, ``pos``, means +1, one of the
    second, ``neg``, -1; never are both set, and padding bits are 0. Bit ``k`` of word ``w`` is
    value ``32 * w + k``. Products need the number of values that are not 0 of each row, which is
    taken when it is packed.

    Args:
        words: int32 ``[..., 2, ceil(size / 32)]``.
        size: values of a row.
        counts: int32 ``[...]``, set bits of each row; taken from the words where left out.
        scale: float32 tensor of no dimensions, what the values are multiples of, or None.

    Raises:
        TypeError: a tensor has another dtype.
        ValueError: shapes or devices do not fit together, or the scale is not positive.
    """

    NAME = "TernaryTensor"
    PLANES = (2,)
    ROW_DIMS = 2

    @classmethod
    def from_float(cls, x: Tensor, scale: Tensor | float) -> TernaryTensor:
        """+1 where ``x >= scale / 2``, -1 where ``x < -scale / 2``, else 0, NaN included.

        Compared in float32, as ternary(x / scale) of the BWTA paper.

        Args:
            x: float32, float16 or bfloat16 ``[..., K]``.
            scale: positive number, or float32 tensor of no dimensions on the device of ``x``.

        Raises:
            TypeError: a dtype does not fit.
            ValueError: ``x`` has no dimension, or the scale is not positive and finite (of a
                tensor on a GPU this is not checked, which would wait for it).
        """
        factor = _quantised("TernaryTensor.from_float", x, scale, 1)
        words, counts = torch.ops.bitgnn.pack_ternary(x, factor)
        return cls._trusted(words, x.size(-1), counts, factor)

    @classmethod
    def from_columns(cls, x: Tensor, scale: Tensor | float) -> TernaryTensor:
        """Pack ``x`` ``[..., L, D]`` transposed to ``[..., D, L]``, without copying it."""
        factor = _quantised("TernaryTensor.from_columns", x, scale, 2)
        words, counts = torch.ops.bitgnn.pack_ternary_columns(x, factor)
        return cls._trusted(words, x.size(-2), counts, factor)

    @property
    def pos(self) -> Tensor:
        """The plane of +1, a view ``[..., ceil(size / 32)]`` of the words."""
        return self.words.select(-2, 0)

    @property
    def neg(self) -> Tensor:
        """The plane of -1, a view ``[..., ceil(size / 32)]`` of the words."""
        return self.words.select(-2, 1)

    def to_float(self) -> Tensor:
        """Float32 ``[..., size]``: -1, 0 and +1, times the scale where there is one."""
        pos, neg = _bits(self.words, self.size).to(torch.float32).unbind(-2)
        return pos - neg if self.scale is None else (pos - neg) * self.scale

    def validate(self) -> Self:
        """Check padding bits, planes and counts and return self; reads the words.

        Raises:
            ValueError: a padding bit is 1, a value is both +1 and -1, or the counts are not those
                of the words.
        """
        both = int((self.pos & self.neg != 0).sum())
        if both != 0:
            raise ValueError(
                f"TernaryTensor: no value may be in both planes, got {both} words with some"
            )
        return super().validate()


class BooleanTensor(_CountedRows):
    """Values in {0, 1} ``[..., size]``, a bit each, with an optional scale for all.

    Args:
        words: int32 ``[..., ceil(size / 32)]``; padding bits are 0.
        size: values of a row.
        counts: int32 ``[...]``, set bits of each row; taken from the words where left out.
        scale: float32 tensor of no dimensions, what a 1 stands for, or None.

    Raises:
        TypeError: a tensor has another dtype.
        ValueError: shapes or devices do not fit together, or the scale is not positive.
    """

    NAME = "BooleanTensor"
    PLANES = ()
    ROW_DIMS = 1

    @classmethod
    def from_float(cls, x: Tensor, scale: Tensor | float) -> BooleanTensor:
        """1 where ``x >= scale / 2``, else 0, NaN included.

        Arguments and errors are those of :meth:`TernaryTensor.from_float`.
        """
        factor = _quantised("BooleanTensor.from_float", x, scale, 1)
        words, counts = torch.ops.bitgnn.pack_bool(x, factor)
        return cls._trusted(words, x.size(-1), counts, factor)

    def to_float(self) -> Tensor:
        """Float32 ``[..., size]``: 0 and 1, times the scale where there is one."""
        values = _bits(self.words, self.size).to(torch.float32)
        return values if self.scale is None else values * self.scale


def scale_tensor(function: str, name: str, scale: Tensor | float, device: torch.device) -> Tensor:
    """A positive, finite scale as a float32 tensor of no dimensions on a device."""
    if isinstance(scale, Tensor):
        _check_scale(function, name, scale, device)
        return scale
    if not isinstance(scale, float | int) or isinstance(scale, bool):
        raise TypeError(f"{function}: {name} must be a number or a tensor, got {name_type(scale)}")
    check_positive(function, name, scale)
    return torch.tensor(float(scale), dtype=torch.float32, device=device)


def check_positive(function: str, name: str, number: float) -> None:
    """Require a number that is positive and finite in float32."""
    if not 0 < number <= torch.finfo(torch.float32).max:
        raise ValueError(f"{function}: {name} must be positive and finite, got {number}")


def _check_scale(function: str, name: str, scale: Any, device: torch.device) -> None:
    """Require one positive float32 number on a device; the value is read on the CPU only."""
    if not isinstance(scale, Tensor) or scale.dtype != torch.float32:
        raise TypeError(f"{function}: {name} must be a float32 tensor, got {name_type(scale)}")
    if scale.dim() != 0:
        raise ValueError(
            f"{function}: {name} must have no dimensions, got shape {list(scale.shape)}"
        )
    if scale.device != device:
        raise ValueError(f"{function}: {name} must be on {device}, got {scale.device}")
    # The operators check again, where a compiled graph runs.
    is_real = type(scale) in (Tensor, torch.nn.Parameter)
    if scale.device.type == "cpu" and not torch.compiler.is_compiling() and is_real:
        check_positive(function, name, float(scale))


def _quantised(function: str, x: Any, scale: Tensor | float, dimensions: int) -> Tensor:
    """Check floats to be made ternary; return their scale as a tensor."""
    is_dense = isinstance(x, Tensor) and x.layout == torch.strided
    if not is_dense or x.dtype not in QUANTISED:
        raise TypeError(f"{function}: x must be float32, float16 or bfloat16, got {name_type(x)}")
    if x.dim() < dimensions:
        raise ValueError(
            f"{function}: x must have {dimensions} or more dimensions, got {list(x.shape)}"
        )
    return scale_tensor(function, "scale", scale, x.device)


def _bits(words: Tensor, size: int) -> Tensor:
    """Booleans ``[..., size]`` of planes ``[..., ceil(size / 32)]``."""
    places = torch.arange(WORD_BITS, dtype=torch.int32, device=words.device)
    bits = (words.unsqueeze(-1) >> places) & 1
    return bits.flatten(-2)[..., :size].bool()


for _kind in (TernaryTensor, BooleanTensor):
    pytrees.register_plain(_kind, ("words", "counts", "scale"), "size")
