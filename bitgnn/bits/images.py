"""BitImages: images or kernels of +-1 values, one bit each, channels packed at every pixel."""

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.bits import pytrees
from bitgnn.bits._operands import PackedSigns, check_packed, check_scale, check_threshold
from bitgnn.bits.tensor import words_for


class BitImages(PackedSigns):
    """Images ``[N, channels, H, W]`` of +-1 values, the channels of a pixel packed into words.

    The words lie as ``[N, H, W, ceil(channels / 32)]``: bit ``k`` of word ``w`` is channel
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
    COUNT = "channels"

    channels: int

    def __init__(self, words: Tensor, channels: int, scale: Tensor | None = None) -> None:
        check_packed("BitImages", words, "channels", channels)
        check_value(channels >= 1, lambda: f"BitImages: channels must be >= 1, got {channels}")
        num_words = words_for(channels)
        check_value(
            words.dim() == 4 and words.size(3) == num_words,
            lambda: (
                f"BitImages: words must have shape [N, H, W, {num_words}] for {channels} channels, "
                f"got {list(words.shape)}"
            ),
        )
        if scale is not None:
            check_scale("BitImages", scale, words)
        self.words = words
        self.channels = channels
        self.scale = scale

    @classmethod
    def from_float(
        cls,
        x: Tensor,
        threshold: Tensor | None = None,
        scale: str | None = None,
        check_finite: bool = False,
    ) -> "BitImages":
        """Binarise ``x``: bit 1 where ``x >= threshold`` (0 without one), else 0, NaN included.

        Contiguous and channels_last ``x`` are read in place, others are copied first.

        Args:
            x: ``[N, C, H, W]``, any floating-point dtype, or uint8.
            threshold: float32 ``[C]``.
            scale: "mean" keeps the mean of ``|x|`` of each image or kernel as the scale.
            check_finite: raise where ``x`` holds NaN or infinity; costs a pass over ``x``.

        Raises:
            TypeError: ``x`` is neither floating point nor uint8, or ``threshold`` not float32.
            ValueError: a shape, device or the scale's name does not fit, or ``x`` is not finite.
        """
        name = "BitImages.from_float"
        check_type(
            isinstance(x, Tensor)
            and (x.is_floating_point() or x.dtype == torch.uint8)
            and x.layout == torch.strided,
            lambda: f"{name}: x must be dense floating point or uint8, got {name_type(x)}",
        )
        check_value(
            x.dim() == 4 and x.size(1) >= 1,
            lambda: f"{name}: x must have shape [N, C, H, W] with C >= 1, got {list(x.shape)}",
        )
        if threshold is not None:
            check_threshold(name, threshold, x, "channels")
        check_value(
            scale is None or (scale == "mean" and threshold is None),
            lambda: f"{name}: scale must be None, or 'mean' without a threshold, got {scale!r}",
        )
        if check_finite:
            check_value(
                bool(torch.isfinite(x).all()),
                lambda: f"{name}: x must be finite, got NaN or infinity",
            )
        words = torch.ops.bitgnn.pack_images(x, threshold)
        means = None if scale is None else torch.ops.bitgnn.pack_scaled(x.flatten(1))[1]
        return cls._trusted(words, x.size(1), means)

    def to_float(self) -> Tensor:
        """Float32 ``[N, channels, H, W]`` in channels_last: +-1, or +-scale where there is one."""
        rows: Tensor = torch.ops.bitgnn.unpack(self.words.flatten(0, -2), self.channels)
        values = rows.view(*self.words.shape[:-1], self.channels).movedim(-1, -3)
        result: Tensor = (
            values if self.scale is None else values * self.scale[..., None, None, None]
        )
        return result

    @property
    def shape(self) -> torch.Size:
        """``(N, channels, H, W)``, without ``N`` for one image."""
        *images, height, width, _ = self.words.shape
        return torch.Size((*images, self.channels, height, width))


pytrees.register_plain(BitImages, ("words", "scale"), "channels")
