"""TernaryTensor and BooleanTensor: rows of {-1, 0, +1} and {0, 1}, with what each row holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.bits import pytrees
from bitgnn.bits._operands import check_packed
from bitgnn.bits.rows import PackedRows
from bitgnn.bits.tensor import WORD_BITS, words_for

if TYPE_CHECKING:
    from typing_extensions import Self

QUANTISED = (torch.float32, torch.float16, torch.bfloat16)
"""Dtypes that can be made ternary."""


class _CountedRows(PackedRows):
    """Base of ternary and boolean rows: words, set bits of each row, one scale."""

    HAS_ONE_BATCH = False
    PLANES: ClassVar[tuple[int, ...]]
    """Dimensions between the rows and their words."""

    size: int
    counts: Tensor

    def __init__(
        self, words: Tensor, size: int, counts: Tensor | None = None, scale: Tensor | None = None
    ) -> None:
        owner = type(self).__name__
        check_packed(owner, words, "size", size)
        shape = [*self.PLANES, words_for(size)]
        inner = len(shape)
        check_value(
            size >= 0 and words.dim() >= inner and list(words.shape[-inner:]) == shape,
            lambda: (
                f"{owner}: words must have shape [..., {', '.join(map(str, shape))}] for size "
                f"{size}, got {list(words.shape)}"
            ),
        )
        if counts is None:
            counts = _bits(words, size).flatten(-inner).sum(-1, dtype=torch.int32)
        check_type(
            isinstance(counts, Tensor) and counts.dtype == torch.int32,
            lambda: f"{owner}: counts must be an int32 tensor, got {name_type(counts)}",
        )
        check_value(
            counts.shape == words.shape[:-inner] and counts.device == words.device,
            lambda: (
                f"{owner}: counts must have shape {list(words.shape[:-inner])} on {words.device}, "
                f"got {list(counts.shape)} on {counts.device}"
            ),
        )
        if scale is not None:
            check_scale(owner, "scale", scale, words.device)
        self.words = words
        self.size = size
        self.counts = counts
        self.scale = scale

    @classmethod
    def _trusted(cls, words: Any, size: int, counts: Any, scale: Any = None) -> Self:
        """Rows without checks, for results of operators."""
        self = object.__new__(cls)
        self.words = words
        self.size = size
        self.counts = counts
        self.scale = scale
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """``(..., size)``; no torch.Size, which would fix the sizes of an exported program."""
        return (*self.counts.shape, self.size)

    def _state(self) -> tuple[Any, ...]:
        return self.words, self.size, self.counts, self.scale

    @classmethod
    def _rebuilt(cls, *state: Any) -> Self:
        return cls(*state).validate()

    def _mapped(self, f: Callable[[Tensor], Tensor], by_row: bool = False) -> Self:
        scale = self.scale if self.scale is None or by_row else f(self.scale)
        return self._trusted(f(self.words), self.size, f(self.counts), scale)

    @classmethod
    def _joined(cls, name: str, parts: list[Any], join: Callable[[list[Tensor]], Tensor]) -> Self:
        first = parts[0]
        check_value(
            all(_is_same_scale(part.scale, first.scale) for part in parts),
            lambda: f"{name}: all tensors must have the scale of the first",
        )
        words, counts = (join([getattr(p, of) for p in parts]) for of in ("words", "counts"))
        return cls._trusted(words, first.size, counts, first.scale)

    def validate(self) -> Self:
        """Check padding bits and counts and return self; reads the words.

        Raises:
            ValueError: a padding bit is 1, or the counts are not those of the words.
        """
        owner, used = type(self).__name__, self.size % WORD_BITS
        padding = int((self.words[..., -1] >> used != 0).sum()) if used else 0
        check_value(
            padding == 0,
            lambda: f"{owner}: padding bits must be 0, got {padding} planes with others",
        )
        inner = len(self.PLANES) + 1
        found = _bits(self.words, self.size).flatten(-inner).sum(-1, dtype=torch.int32)
        check_value(
            torch.equal(found, self.counts),
            lambda: f"{owner}: counts must be the set bits of each row, got others",
        )
        return self

    def to_tensors(self, prefix: str = "") -> dict[str, Tensor]:
        """Plain tensors under ``prefix``: words, size, counts and scale, for safetensors."""
        tensors = {
            f"{prefix}words": self.words.contiguous(),
            f"{prefix}size": torch.tensor(self.size),
            f"{prefix}counts": self.counts.contiguous(),
        }
        if self.scale is not None:
            tensors[f"{prefix}scale"] = self.scale
        return tensors

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], prefix: str = "") -> Self:
        """The inverse of :meth:`to_tensors`.

        Raises:
            ValueError: a tensor is missing, shapes do not fit, or bits are not as they must be.
        """
        names = [prefix + name for name in ("words", "size", "counts")]
        missing = [name for name in names if name not in tensors]
        check_value(
            not missing,
            lambda: (
                f"{cls.__name__}.from_tensors: tensors must hold {missing}, got {sorted(tensors)}"
            ),
        )
        words, size, counts = (tensors[name] for name in names)
        return cls(words, int(size), counts, tensors.get(f"{prefix}scale")).validate()


class TernaryTensor(_CountedRows):
    """Values in {-1, 0, +1} ``[..., size]`` as two bit planes, with an optional scale for all.

    The planes of a row lie behind each other. A bit of the first, ``pos``, means +1, one of the
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
        """The same of ``x`` transposed, ``[..., L, D]`` to ``[..., D, L]``, without copying it."""
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
        check_value(
            both == 0,
            lambda: f"TernaryTensor: no value may be in both planes, got {both} words with some",
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
        """1 where ``x >= scale / 2``, else 0, NaN included; see :meth:`TernaryTensor.from_float`.

        Args:
            x: float32, float16 or bfloat16 ``[..., K]``.
            scale: positive number, or float32 tensor of no dimensions on the device of ``x``.

        Raises:
            TypeError: a dtype does not fit.
            ValueError: ``x`` has no dimension, or the scale is not positive and finite.
        """
        factor = _quantised("BooleanTensor.from_float", x, scale, 1)
        words, counts = torch.ops.bitgnn.pack_bool(x, factor)
        return cls._trusted(words, x.size(-1), counts, factor)

    def to_float(self) -> Tensor:
        """Float32 ``[..., size]``: 0 and 1, times the scale where there is one."""
        values = _bits(self.words, self.size).to(torch.float32)
        return values if self.scale is None else values * self.scale


def scale_tensor(function: str, name: str, scale: Tensor | float, device: torch.device) -> Tensor:
    """A scale as a float32 tensor of no dimensions on a device.

    Raises:
        TypeError: it is neither a number nor a float32 tensor.
        ValueError: it is not positive and finite, has dimensions or is on another device.
    """
    if isinstance(scale, Tensor):
        check_scale(function, name, scale, device)
        return scale
    check_type(
        isinstance(scale, float | int) and not isinstance(scale, bool),
        lambda: f"{function}: {name} must be a number or a tensor, got {name_type(scale)}",
    )
    check_positive(function, name, scale)
    return torch.tensor(float(scale), dtype=torch.float32, device=device)


def check_positive(function: str, name: str, number: float) -> None:
    """Require a number that is positive and finite in float32.

    Raises:
        ValueError: it is not.
    """
    check_value(
        0 < number <= torch.finfo(torch.float32).max,
        lambda: f"{function}: {name} must be positive and finite, got {number}",
    )


def check_scale(function: str, name: str, scale: Tensor, device: torch.device) -> None:
    """Require one positive float32 number on a device; the value is read on the CPU only.

    Raises:
        TypeError: it has another dtype.
        ValueError: it has dimensions, is on another device or is not positive and finite.
    """
    check_type(
        isinstance(scale, Tensor) and scale.dtype == torch.float32,
        lambda: f"{function}: {name} must be a float32 tensor, got {name_type(scale)}",
    )
    check_value(
        scale.dim() == 0,
        lambda: f"{function}: {name} must have no dimensions, got shape {list(scale.shape)}",
    )
    check_value(
        scale.device == device,
        lambda: f"{function}: {name} must be on {device}, got {scale.device}",
    )
    # The operators check again, where a compiled graph runs.
    if scale.device.type == "cpu" and not torch.compiler.is_compiling() and _is_real(scale):
        check_positive(function, name, float(scale))


def _is_same_scale(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))


def _is_real(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, torch.nn.Parameter)


def _quantised(function: str, x: Tensor, scale: Tensor | float, dimensions: int) -> Tensor:
    """Check what is made ternary; its scale as a tensor."""
    check_type(
        isinstance(x, Tensor) and x.dtype in QUANTISED and x.layout == torch.strided,
        lambda: f"{function}: x must be float32, float16 or bfloat16, got {name_type(x)}",
    )
    check_value(
        x.dim() >= dimensions,
        lambda: f"{function}: x must have {dimensions} or more dimensions, got {list(x.shape)}",
    )
    return scale_tensor(function, "scale", scale, x.device)


def _bits(words: Tensor, size: int) -> Tensor:
    """Booleans ``[..., size]`` of planes ``[..., ceil(size / 32)]``."""
    places = torch.arange(WORD_BITS, dtype=torch.int32, device=words.device)
    bits = (words.unsqueeze(-1) >> places) & 1
    return bits.flatten(-2)[..., :size].bool()


for _kind in (TernaryTensor, BooleanTensor):
    pytrees.register_plain(_kind, ("words", "counts", "scale"), "size")
