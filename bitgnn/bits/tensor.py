"""BitTensor and BitImages: matrices and images of +-1 values, one bit each, perhaps scaled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits import pytrees
from bitgnn.bits._operands import check_binarised, check_scale
from bitgnn.bits.pyg_storage import teach_storages
from bitgnn.bits.rows import PackedRows

if TYPE_CHECKING:
    from typing_extensions import Self


WORD_BITS = 32
"""Features in a word; also the number of lanes of the canonical row scale."""


def words_for(size: int) -> int:
    """Number of int32 words that hold ``size`` features."""
    return (size + WORD_BITS - 1) // WORD_BITS


def check_packed(owner: str, words: Tensor, name: str, count: int) -> None:
    """Require int32 words and an int ``count``, called ``name``."""
    is_tensor = isinstance(words, Tensor) and not isinstance(words, PackedRows)
    if not is_tensor or words.dtype != torch.int32:
        raise TypeError(f"{owner}: words must be an int32 tensor, got {name_type(words)}")
    if isinstance(count, bool) or not isinstance(count, int | torch.SymInt):
        raise TypeError(f"{owner}: {name} must be an int, got {name_type(count)}")


def check_padding(owner: str, words: Tensor, size: int, unit: str) -> None:
    """Require padding bits of 0 in ``[..., ceil(size / 32)]``; counts the units with others."""
    used = size % WORD_BITS
    # An arithmetic shift keeps set high bits set, so 0 means that all of them are 0.
    padding = int((words[..., -1] >> used != 0).sum()) if used else 0
    if padding != 0:
        raise ValueError(f"{owner}: padding bits must be 0, got {padding} {unit} with others")


class PackedSigns(PackedRows):
    """Base of packed +-1 values: words, a count of features, and a scale of each row or None."""

    COUNT: ClassVar[str]
    """Name of the attribute with the number of features."""

    words: Tensor
    scale: Tensor | None

    @classmethod
    def _trusted(cls, words: Any, count: Any, scale: Any = None) -> Self:
        self = object.__new__(cls)
        self.words = words
        setattr(self, cls.COUNT, count)
        self.scale = scale
        return self

    def _hold(self, words: Tensor, count: int, scale: Tensor | None, rows: str, shown: str) -> None:
        """Check and store words, with rows of shape ``rows``, and a scale."""
        num_words = words_for(count)
        if count < 0 or words.dim() != 1 + self.ROW_DIMS or words.size(-1) != num_words:
            raise ValueError(
                f"{self.NAME}: words must have shape [{rows}, {num_words}] for {shown}, "
                f"got {list(words.shape)}"
            )
        if scale is not None:
            check_scale(self.NAME, "scale", scale, words.size(0), words.device)
        self.words = words
        setattr(self, self.COUNT, count)
        self.scale = scale

    @classmethod
    def _rebuilt(cls, words: Any, count: Any, scale: Any = None) -> Self:
        if isinstance(words, Tensor) and words.dim() == cls.ROW_DIMS:
            scale = scale.unsqueeze(0) if isinstance(scale, Tensor) else scale
            return cls._rebuilt(words.unsqueeze(0), count, scale)[0]
        return cls(words, count, scale)  # type: ignore[call-arg]


class BitTensor(PackedSigns):
    """A matrix ``[N, size]`` of +-1 values packed 32 features to an int32 word.

    Bit 1 means +1, bit 0 means -1. Bit ``k`` of word ``w`` is feature ``32 * w + k``, as in
    ``numpy.packbits(bitorder="little")``; padding bits are 0. With a ``scale`` the value of
    feature ``k`` in row ``i`` is ``+-scale[i]``. A row ``bits[i]`` is a ``BitTensor`` ``[size]``.

    Operators take and return it, which costs them nothing; PyG looks for features among tensors
    alone, so that its ``Data`` holds what :meth:`as_features` returns.

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
    FIELDS = ("words", "size", "scale")
    COUNT = "size"

    size: int

    def __init__(self, words: Tensor, size: int, scale: Tensor | None = None) -> None:
        teach_storages()
        check_packed("BitTensor", words, "size", size)
        self._hold(words, size, scale, "N", f"size {size}")
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
        name = "BitTensor.from_float"
        teach_storages()
        if not isinstance(x, Tensor) or not (x.is_floating_point() or x.dtype == torch.uint8):
            raise TypeError(f"{name}: x must be floating point or uint8, got {name_type(x)}")
        if x.dim() != 2:
            raise ValueError(f"{name}: x must have shape [N, K], got {list(x.shape)}")
        if scale not in (None, "mean"):
            raise ValueError(f"{name}: scale must be None or 'mean', got {scale!r}")
        check_binarised(name, x, "features", threshold, check_finite)
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

    def t(self) -> BitTensor:
        """The transposed matrix ``[size, N]``, its rows packed anew.

        Raises:
            ValueError: there is a scale, which a transposed matrix would hold for its columns.
        """
        if self.scale is not None:
            raise ValueError("BitTensor.t: a matrix with a scale of each row cannot be transposed")
        words = torch.ops.bitgnn.transpose_bits(self.words, self.size)
        return BitTensor._trusted(words, self.words.size(0))

    @property
    def shape(self) -> torch.Size:
        """``(N, size)``, of a row ``(size,)``."""
        return torch.Size((*self.words.shape[:-1], self.size))

    def validate(self) -> BitTensor:
        """Check that padding bits are 0 and return self; reads the words once.

        Raises:
            ValueError: a padding bit is 1.
        """
        check_padding("BitTensor", self.words, self.size, "rows")
        return self

    def to_tensors(self, prefix: str = "") -> dict[str, Tensor]:
        """Plain tensors under ``prefix``: words, size (int64 scalar) and scale, for safetensors."""
        tensors = {f"{prefix}words": self.words, f"{prefix}size": torch.tensor(self.size)}
        return tensors if self.scale is None else {**tensors, f"{prefix}scale": self.scale}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], prefix: str = "") -> BitTensor:
        """The inverse of :meth:`to_tensors`.

        Raises:
            ValueError: words or size is missing, or shapes do not fit, or padding bits are set.
        """
        words, size = held_tensors(cls, tensors, prefix, "words", "size")
        return cls(words, int(size), tensors.get(f"{prefix}scale")).validate()


def held_tensors(
    kind: type, tensors: dict[str, Tensor], prefix: str, *names: str
) -> tuple[Tensor, ...]:
    """The tensors that a kind cannot do without."""
    missing = [prefix + name for name in names if prefix + name not in tensors]
    if missing:
        raise ValueError(
            f"{kind.__name__}.from_tensors: tensors must hold {missing}, got {sorted(tensors)}"
        )
    return tuple(tensors[prefix + name] for name in names)


class BitImages(PackedSigns):
    """Images ``[N, channels, H, W]`` of +-1 values, the channels of a pixel packed into words.

    The words are ``[N, H, W, ceil(channels / 32)]``: bit ``k`` of word ``w`` is channel
    ``32 * w + k``, as in :class:`~bitgnn.BitTensor`. The weights of a convolution,
    ``[O, channels / groups, kh, kw]``, are packed alike. With a ``scale`` the values of image
    ``i``, or of the kernel of output ``i``, are ``+-scale[i]``.

    Args:
        words: int32 ``[N, H, W, ceil(channels / 32)]``; padding bits are 0.
        channels: number of channels, at least 1.
        scale: float32 ``[N]``, or None for plain +-1.

    Raises:
        TypeError: a tensor has another dtype.
        ValueError: shapes or devices do not fit together.
    """

    NAME = "BitImages"
    ROW_DIMS = 3
    FIELDS = ("words", "channels", "scale")
    COUNT = "channels"

    channels: int

    def __init__(self, words: Tensor, channels: int, scale: Tensor | None = None) -> None:
        check_packed("BitImages", words, "channels", channels)
        if channels < 1:
            raise ValueError(f"BitImages: channels must be >= 1, got {channels}")
        self._hold(words, channels, scale, "N, H, W", f"{channels} channels")

    @classmethod
    def from_float(
        cls,
        x: Tensor,
        threshold: Tensor | None = None,
        scale: str | None = None,
        check_finite: bool = False,
    ) -> BitImages:
        """Binarise ``x`` as :meth:`BitTensor.from_float`, with its errors.

        Contiguous and channels_last ``x`` are read in place, others are copied first.

        Args:
            x: ``[N, C, H, W]``, any floating-point dtype, or uint8.
            threshold: float32 ``[C]``.
            scale: "mean", without a threshold, keeps the mean of ``|x|`` of each image or kernel.
            check_finite: raise where ``x`` holds NaN or infinity; costs a pass over ``x``.
        """
        name = "BitImages.from_float"
        is_dense = isinstance(x, Tensor) and x.layout == torch.strided
        if not is_dense or not (x.is_floating_point() or x.dtype == torch.uint8):
            raise TypeError(f"{name}: x must be dense floating point or uint8, got {name_type(x)}")
        if x.dim() != 4 or x.size(1) < 1:
            raise ValueError(
                f"{name}: x must have shape [N, C, H, W] with C >= 1, got {list(x.shape)}"
            )
        if scale is not None and (scale != "mean" or threshold is not None):
            raise ValueError(
                f"{name}: scale must be None, or 'mean' without a threshold, got {scale!r}"
            )
        check_binarised(name, x, "channels", threshold, check_finite)
        words = torch.ops.bitgnn.pack_images(x, threshold)
        means = None if scale is None else torch.ops.bitgnn.pack_scaled(x.flatten(1))[1]
        return cls._trusted(words, x.size(1), means)

    def to_float(self) -> Tensor:
        """Float32 ``[N, channels, H, W]`` in channels_last: +-1, or +-scale where there is one."""
        rows = torch.ops.bitgnn.unpack(self.words.flatten(0, -2), self.channels)
        values: Tensor = rows.view(*self.words.shape[:-1], self.channels).movedim(-1, -3)
        return values if self.scale is None else values * self.scale[..., None, None, None]

    @property
    def shape(self) -> torch.Size:
        """``(N, channels, H, W)``, without ``N`` for one image."""
        *images, height, width, _ = self.words.shape
        return torch.Size((*images, self.channels, height, width))


pytrees.register_plain(BitTensor, ("words", "scale"), "size")
pytrees.register_plain(BitImages, ("words", "scale"), "channels")
