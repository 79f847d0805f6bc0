"""Reference of binary convolution whose sums another layer's are added to."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.ops.reference.conv import IMAGES, empty_pixels, image_words, integer_dots
from bitgnn.ops.reference.pack import decide
from bitgnn.ops.reference.table import operator, words_for


def _totals_and_words(
    x: Tensor,
    w: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    wide: bool,
    sums: bool,
    bits: bool,
) -> tuple[Tensor, Tensor]:
    """Sums and words of each output pixel, where they are asked for."""
    size, numbers = x.shape[1:3], (stride, padding, dilation)
    dtype = torch.int32 if wide else torch.int16
    totals = empty_pixels(x, size, w, numbers, w.size(0), dtype)
    words = empty_pixels(x, size, w, numbers, words_for(w.size(0)))
    return (
        totals if sums else x.new_empty((0,), dtype=dtype),
        words if bits else x.new_empty((0,)),
    )


@operator(f"{IMAGES} addend:_,_,_,_", _totals_and_words)
def conv_add(
    x: Tensor,
    w: Tensor,
    channels: int,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
    addend: Tensor | None = None,
    addend_stride: Sequence[int] | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    wide: bool = False,
    sums: bool = True,
    bits: bool = True,
    prepared: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``total = dot + addend[i, y * s, x * t, c]`` and words of ``(total >= threshold) ^ flip``.

    Channels that ``addend`` lacks count as 0 there. Totals are int32 ``wide``, else int16, clamped.
    An output that is not asked for has shape ``[0]``.
    """
    if not (sums or bits):
        raise ValueError("sums or bits must be asked for, got neither")
    total = integer_dots(x, w, channels, stride, padding, dilation, groups)
    if addend is not None:
        rows, columns = (1, 1) if addend_stride is None else addend_stride
        added = addend[:, ::rows, ::columns].to(torch.int32)
        total = total + functional.pad(added, (0, total.size(3) - added.size(3)))
    words = kept = total.new_empty((0,))
    if bits:
        words = image_words(decide(total.to(torch.float32), threshold, flip))
    if sums:
        kept = total if wide else total.clamp(-32768, 32767)
    return kept.to(torch.int32 if wide else torch.int16), words
