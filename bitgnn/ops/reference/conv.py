"""Reference of operators on images: packing, pooling, binary convolution, first layers, patches.

Images are packed as words ``[N, H, W, ceil(C / 32)]``, weights as ``[O, kh, kw, ceil(C / g / 32)]``
for ``g`` groups. ``dot`` is the sum of the products of +-1 values over the taps inside the image:
what torch's convolution of +-1 gives with zeros around the image. ``padding`` is top, bottom, left,
right.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.bits.tensor import words_for
from bitgnn.ops.reference.pack import binarise, decide, decide_product, signs, to_words
from bitgnn.ops.reference.table import COMPARED, Arguments, operator

_NUMBERS = "stride:ints padding:ints dilation:ints"
_IMAGES = f"x:_,_,_,_@int32 w:M,_,_,_@int32 channels:int {_NUMBERS} groups=1"
_FLOAT_IMAGES = f"x:_,_,_,_@pixels w:M,_,_,_@int32 step:float {_NUMBERS}"


def window_places(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
) -> tuple[int, int]:
    """Output height and width of a convolution or pool; ``padding`` has four sides."""
    if min(*kernel, *stride, *dilation, *(1 + p for p in padding)) < 1:
        raise RuntimeError("numbers of windows must be at least 1, those of padding 0")
    height, width = (
        (size[i] + padding[2 * i] + padding[2 * i + 1] - dilation[i] * (kernel[i] - 1) - 1)
        // stride[i]
        + 1
        for i in range(2)
    )
    return height, width


def image_words(bits: Tensor) -> Tensor:
    """Booleans ``[N, H, W, C]`` as words ``[N, H, W, ceil(C / 32)]``."""
    words = to_words(bits.flatten(0, 2))
    return words.view(*bits.shape[:3], words.size(1))


def image_signs(words: Tensor, channels: int) -> Tensor:
    """Float64 ``[N, C, H, W]`` in {-1, +1}; float64 sums of integers are exact."""
    values = signs(words.reshape(-1, words.size(3)), channels)
    return values.view(*words.shape[:3], channels).permute(0, 3, 1, 2).double()


def fixed_point(x: Tensor, step: float) -> Tensor:
    """Float64 ``clamp(round(x / step), -32768, 32767)``, halves to even, NaN as 0; uint8 as is."""
    if x.dtype == torch.uint8:
        return x.double()
    steps = (x.to(torch.float32) / step).round().clamp(-32768, 32767)
    return steps.nan_to_num(0.0).double()


def scaled_dots(
    dot: Tensor, w_scale: Tensor | None, bias: Tensor | None, step: float = 1.0
) -> Tensor:
    """``w_scale[o] * (step * dot) + bias[o]``, every step rounded to float32."""
    value = dot.to(torch.float32) * step
    value = value if w_scale is None else w_scale * value
    return value if bias is None else value + bias


def _dots(a: Arguments, values: Tensor, groups: int = 1) -> Tensor:
    """The exact integers ``[N, out height, out width, O]`` of float64 images, as int32."""
    top, bottom, left, right = a.padding
    padded = functional.pad(values, (left, right, top, bottom))
    weight = image_signs(a.w, values.size(1) // groups)
    dot = functional.conv2d(padded, weight, None, list(a.stride), 0, list(a.dilation), groups)
    return dot.round().to(torch.int32).permute(0, 2, 3, 1).contiguous()


def _bit_dots(a: Arguments) -> Tensor:
    return _dots(a, image_signs(a.x, a.channels), a.groups)


def _values(a: Arguments, dot: Tensor, step: float = 1.0) -> Tensor:
    """Floats, or ``dot`` with ``integer``."""
    if not a.integer:
        return scaled_dots(dot, a.w_scale, a.bias, step)
    if a.w_scale is not None or a.bias is not None:
        raise ValueError("integer=True leaves no room for a scale or a bias")
    return dot


def _words(a: Arguments, dot: Tensor, step: float = 1.0) -> Tensor:
    value = partial(scaled_dots, dot, a.w_scale, a.bias, step)
    return image_words(decide_product(a, dot, value))


def _places(a: Arguments, size: Sequence[int]) -> tuple[int, int, int]:
    """Images, and height and width of a convolution's result."""
    places = window_places(size, a.w.shape[1:3], a.stride, a.padding, a.dilation)
    return (a.x.size(0), *places)


def _empty_words(a: Arguments, size: Sequence[int]) -> Tensor:
    shape = (*_places(a, size), words_for(a.w.size(0)))
    return a.x.new_empty(shape, dtype=torch.int32)


def _empty_values(a: Arguments, size: Sequence[int]) -> Tensor:
    dtype = torch.int32 if a.integer else torch.float32
    return a.x.new_empty((*_places(a, size), a.w.size(0)), dtype=dtype)


@operator("x:N,C,H,V@packable threshold?:C -> bits:N,H,V,C")
def pack_images(a: Arguments) -> Tensor:
    """Words ``[N, H, W, ceil(C / 32)]`` of ``x >= threshold[c]`` for ``x`` ``[N, C, H, W]``."""
    return image_words(binarise(a.x.permute(0, 2, 3, 1), a.threshold))


def _pooled(a: Arguments) -> Tensor:
    places = window_places(a.x.shape[1:3], a.kernel, a.stride, a.padding)
    return a.x.new_empty((a.x.size(0), *places, a.x.size(3)))


@operator("x:_,_,_,U kernel:ints stride:ints padding:ints flip?:U", _pooled)
def pool_bits(a: Arguments) -> Tensor:
    """OR of the words ``[N, H, W, words]`` over each window's pixels inside the image.

    ``flip`` ``[words]`` turns bits round before and after, which makes it the minimum there.
    ``padding`` is less than the kernel.
    """
    top, bottom, left, right = a.padding
    turned = a.x if a.flip is None else a.x ^ a.flip
    # Words of zeros around the image change no OR.
    padded = functional.pad(turned, (0, 0, left, right, top, bottom))
    rows, columns = window_places(padded.shape[1:3], a.kernel, a.stride)
    out = a.x.new_zeros((a.x.size(0), rows, columns, a.x.size(3)))
    for i in range(a.kernel[0]):
        for j in range(a.kernel[1]):
            below = padded[:, i :: a.stride[0], j :: a.stride[1]]
            out |= below[:, :rows, :columns]
    return out if a.flip is None else out ^ a.flip


def _pooled_words(a: Arguments) -> Tensor:
    """Words of each output pixel, or of each window of them."""
    words = _empty_words(a, a.x.shape[1:3])
    if a.pool is None:
        return words
    places = window_places(words.shape[1:3], a.pool, a.pool)
    return words.new_empty((words.size(0), *places, words.size(3)))


@operator(
    f"{_IMAGES} w_scale?:M {COMPARED} prepared?:M,_ pool?:ints pool_flip?:_@int32", _pooled_words
)
def conv_bbb(a: Arguments) -> Tensor:
    """Words of ``(w_scale[o] * dot + bias[o] >= threshold[o]) ^ flip[o]``.

    Without bias and threshold the scale, which is positive, is never applied. ``prepared`` only
    saves kernels work. With ``pool`` (height, width) the words are pooled over windows next to each
    other, ``pool_flip`` being the flip there.
    """
    words = _words(a, _bit_dots(a))
    if a.pool is not None:
        return pool_bits(words, a.pool, a.pool, (0, 0, 0, 0), a.pool_flip)
    if a.pool_flip is not None:
        raise ValueError("pool_flip must be left out where there is no pool")
    return words


@operator(
    f"{_IMAGES} w_scale?:M bias?:M integer=False prepared?:M,_",
    lambda a: _empty_values(a, a.x.shape[1:3]),
)
def conv_bbf(a: Arguments) -> Tensor:
    """``w_scale[o] * dot + bias[o]`` as float32 ``[N, out height, out width, O]``.

    With ``integer`` it is ``dot`` as int32, without scale and bias.
    """
    return _values(a, _bit_dots(a))


def _totals_and_words(a: Arguments) -> tuple[Tensor, Tensor]:
    """Sums and words of each output pixel, where they are asked for."""
    size, dtype = a.x.shape[1:3], torch.int32 if a.wide else torch.int16
    totals = a.x.new_empty((*_places(a, size), a.w.size(0)) if a.sums else (0,), dtype=dtype)
    return totals, _empty_words(a, size) if a.bits else a.x.new_empty((0,))


@operator(
    f"{_IMAGES} addend?:_,_,_,_@sums addend_stride?:ints threshold?:M flip?:M "
    "wide=False sums=True bits=True prepared?:M,_",
    _totals_and_words,
)
def conv_add(a: Arguments) -> tuple[Tensor, Tensor]:
    """``total = dot + addend[i, y * s, x * t, c]`` and words of ``(total >= threshold) ^ flip``.

    Channels that ``addend`` lacks count as 0 there. Totals are int32 ``wide``, else int16, clamped.
    An output that is not asked for has shape ``[0]``.
    """
    if not (a.sums or a.bits):
        raise ValueError("sums or bits must be asked for, got neither")
    total = _bit_dots(a)
    if a.addend is not None:
        rows, columns = (1, 1) if a.addend_stride is None else a.addend_stride
        added = a.addend[:, ::rows, ::columns].to(torch.int32)
        total = total + functional.pad(added, (0, total.size(3) - added.size(3)))
    words = kept = total.new_empty((0,))
    if a.bits:
        words = image_words(decide(total.to(torch.float32), a.threshold, a.flip))
    if a.sums:
        kept = total if a.wide else total.clamp(-32768, 32767)
    return kept.to(torch.int32 if a.wide else torch.int16), words


@operator(
    f"{_FLOAT_IMAGES} w_scale?:M {COMPARED} prepared?:M,_",
    lambda a: _empty_words(a, a.x.shape[2:4]),
)
def conv_fbb(a: Arguments) -> Tensor:
    """Words of ``(w_scale[o] * (step * dot) + bias[o] >= threshold[o]) ^ flip[o]``.

    Without bias and threshold the scale, which is positive, is never applied.
    """
    return _words(a, _dots(a, fixed_point(a.x, a.step)), a.step)


@operator(
    f"{_FLOAT_IMAGES} w_scale?:M bias?:M integer=False",
    lambda a: _empty_values(a, a.x.shape[2:4]),
)
def conv_fbf(a: Arguments) -> Tensor:
    """``w_scale[o] * (step * dot) + bias[o]`` as float32 ``[N, out height, out width, O]``.

    With ``integer`` it is ``dot`` as int32, without scale and bias.
    """
    return _values(a, _dots(a, fixed_point(a.x, a.step)), a.step)


def _patches(a: Arguments) -> Tensor:
    places = window_places(a.x.shape[2:], a.kernel, a.stride, a.padding, a.dilation)
    return a.x.new_empty((a.x.size(0), *places, 2 * a.x.size(1)), dtype=torch.int32)


@operator(f"x:_,C,_,_ kernel:ints {_NUMBERS} threshold?:C", _patches)
def pack_patches(a: Arguments) -> Tensor:
    """Words ``[N, out height, out width, 2 * C]`` of the patches of ``x`` ``[N, C, H, W]``.

    Bit ``i * kernel[1] + j`` stands for tap (i, j) of a patch: set in word ``2 * c`` where channel
    ``c`` is at least its threshold, in word ``2 * c + 1`` where it is not, in neither outside of
    the image.
    """
    top, bottom, left, right = a.padding
    bits = binarise(a.x.permute(0, 2, 3, 1), a.threshold)
    frame = (0, 0, left, right, top, bottom)
    marks = [functional.pad(kind.long(), frame) for kind in (bits, ~bits)]
    size = window_places(a.x.shape[2:], a.kernel, a.stride, a.padding, a.dilation)
    shape = (a.x.size(0), *size, a.x.size(1), 2)
    words = torch.zeros(shape, dtype=torch.int64, device=a.x.device)
    for i in range(a.kernel[0]):
        for j in range(a.kernel[1]):
            shift = i * a.kernel[1] + j
            for which, mark in enumerate(marks):
                taps = mark[:, i * a.dilation[0] :: a.stride[0], j * a.dilation[1] :: a.stride[1]]
                words[..., which] |= taps[:, : size[0], : size[1]] << shift
    # The upper half of the range is that of negative int32.
    words = torch.where(words >= 2**31, words - 2**32, words)
    return words.to(torch.int32).flatten(3)
