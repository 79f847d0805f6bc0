"""BitTensor: a matrix of +-1 values, one bit each, with an optional scale for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.bits import pytrees
from bitgnn.bits._operands import PackedSigns, check_packed, check_scale, check_threshold

if TYPE_CHECKING:
    from bitgnn.bits.features import BitFeatures

WORD_BITS = 32
"""Features in a word; also the number of lanes of the canonical row scale."""


def words_for(size: int) -> int:
    """Number of int32 words that hold ``size`` features."""
    return (size + WORD_BITS - 1) // WORD_BITS


class BitTensor(PackedSigns):
    """A matrix ``[N, size]`` of +-1 values packed 32 features to an int32 word.

    Bit 1 means +1, bit 0 means -1. Bit ``k`` of word ``w`` is feature ``32 * w + k``, as in
    ``numpy.packbits(bitorder="little")``; padding bits are 0. With a ``scale`` the value of
    feature ``k`` in row ``i`` is ``+-scale[i]``. A row ``bits[i]`` is a ``BitTensor`` ``[size]``.

    Operators take and return it, which costs them nothing; PyG, which looks for features among
    tensors alone, takes what :meth:`as_features` returns.

    Args:
        words: int32 ``[N, ceil(size / 32)]``.
        size: number of features.
        scale: float32 ``[N]``, or None for plain +-1.

    Raises:
        TypeError: a tensor has another dtype.
        ValueError: shapes or devices do not fit together, or words on the CPU have padding bits
            set; on a GPU, whose memory is not waited for, :meth:`validate` tells.
    """

    NAME = "BitTensor"
    ROW_DIMS = 1
    COUNT = "size"

    size: int

    def __init__(self, words: Tensor, size: int, scale: Tensor | None = None) -> None:
        check_packed("BitTensor", words, "size", size)
        num_words = words_for(size)
        check_value(
            size >= 0 and words.dim() == 2 and words.size(1) == num_words,
            lambda: (
                f"BitTensor: words must have shape [N, {num_words}] for size {size}, "
                f"got {list(words.shape)}"
            ),
        )
        if scale is not None:
            check_scale("BitTensor", scale, words)
        self.words = words
        self.size = size
        self.scale = scale
        # A GPU's memory is not waited for, and a traced tensor has no values.
        if type(words) is Tensor and words.device.type == "cpu":
            self.validate()

    @classmethod
    def from_float(
        cls,
        x: Tensor,
        threshold: Tensor | None = None,
        scale: str | None = None,
        check_finite: bool = False,
    ) -> BitTensor:
        """Binarise ``x``: bit 1 where ``x >= threshold`` (0 without one), else 0, NaN included.

        Args:
            x: ``[N, K]``, any floating-point dtype, or uint8.
            threshold: float32 ``[K]``.
            scale: "mean" keeps the mean of ``|x - threshold|`` of each row as the scale.
            check_finite: raise where ``x`` holds NaN or infinity; costs a pass over ``x``.

        Raises:
            TypeError: ``x`` is neither floating point nor uint8.
            ValueError: a shape, device or the scale's name does not fit, or ``x`` is not finite.
        """
        check_type(
            isinstance(x, Tensor) and (x.is_floating_point() or x.dtype == torch.uint8),
            lambda: f"BitTensor.from_float: x must be floating point or uint8, got {name_type(x)}",
        )
        check_value(
            x.dim() == 2,
            lambda: f"BitTensor.from_float: x must have shape [N, K], got {list(x.shape)}",
        )
        if threshold is not None:
            check_threshold("BitTensor.from_float", threshold, x, "features")
        check_value(
            scale in (None, "mean"),
            lambda: f"BitTensor.from_float: scale must be None or 'mean', got {scale!r}",
        )
        if check_finite:
            check_value(
                bool(torch.isfinite(x).all()),
                lambda: "BitTensor.from_float: x must be finite, got NaN or infinity",
            )
        if scale is None:
            return cls._made(torch.ops.bitgnn.pack(x, threshold), x.size(1))
        words, means = torch.ops.bitgnn.pack_scaled(x, threshold)
        return cls._made(words, x.size(1), means)

    def to_float(self) -> Tensor:
        """Float32 ``[N, size]``: +-1, or +-scale where there is a scale."""
        if self.words.dim() == self.ROW_DIMS:
            return self._mapped(lambda part: part.unsqueeze(0)).to_float().squeeze(0)
        result: Tensor = torch.ops.bitgnn.unpack(self.words, self.size, self.scale)
        return result

    def as_features(self) -> BitFeatures:
        """The same bits as a ``torch.Tensor`` too: ``Data(x=bits.as_features())``."""
        from bitgnn.bits.features import BitFeatures

        return BitFeatures._made(self.words, self.size, self.scale)

    def t(self) -> BitTensor:
        """The transposed matrix ``[size, N]``, its rows packed anew.

        Raises:
            ValueError: there is a scale, which a transposed matrix would hold for its columns.
        """
        check_value(
            self.scale is None,
            lambda: "BitTensor.t: a matrix with a scale of each row cannot be transposed",
        )
        words = torch.ops.bitgnn.transpose_bits(self.words, self.size)
        return BitTensor._trusted(words, self.words.size(0))

    @property
    def shape(self) -> torch.Size:
        """``(N, size)``, of a row ``(size,)``."""
        if self.words.dim() == self.ROW_DIMS:
            return torch.Size((self.size,))
        return torch.Size((self.words.size(0), self.size))

    def validate(self) -> BitTensor:
        """Check that padding bits are 0 and return self; reads the words once.

        Raises:
            ValueError: a padding bit is 1.
        """
        used = self.size % WORD_BITS
        if used:
            padding = int((self.words[..., -1] >> used != 0).sum())
            # An arithmetic shift keeps set high bits set, so 0 means that all of them are 0.
            check_value(
                padding == 0,
                lambda: f"BitTensor: padding bits must be 0, got {padding} rows with others",
            )
        return self

    def to_tensors(self, prefix: str = "") -> dict[str, Tensor]:
        """Plain tensors under ``prefix``: words, size (int64 scalar) and scale, for safetensors."""
        tensors = {f"{prefix}words": self.words, f"{prefix}size": torch.tensor(self.size)}
        if self.scale is not None:
            tensors[f"{prefix}scale"] = self.scale
        return tensors

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], prefix: str = "") -> BitTensor:
        """The inverse of :meth:`to_tensors`.

        Raises:
            ValueError: words or size is missing, or shapes do not fit, or padding bits are set.
        """
        missing = [prefix + name for name in ("words", "size") if prefix + name not in tensors]
        check_value(
            not missing,
            lambda: f"BitTensor.from_tensors: tensors must hold {missing}, got {sorted(tensors)}",
        )
        size = int(tensors[f"{prefix}size"])
        return cls(tensors[f"{prefix}words"], size, tensors.get(f"{prefix}scale")).validate()


pytrees.register_plain(BitTensor, ("words", "scale"), "size")
