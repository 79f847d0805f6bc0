r"""Binary convolution: packed images times packed kernels, to bits, values or sums.

``x`` is :class:`~bitgnn.bits.BitImages` ``[N, C, H, W]``, ``w`` ``[O, C / groups, kh, kw]`` as in
``torch.nn.Conv2d``. ``dot`` is the sum of the products of +-1 over the taps of the kernel inside
the image, an exact integer: taps outside are left out, as torch's convolution does with zeros
around the image, and do not count as -1; :func:`pad` puts pixels of -1 around images.

- ``stride``, ``dilation``: a number or a pair (height, width), at least 1.
- ``padding``: a number, a pair (height, width), or ``"valid"`` or ``"same"`` with
  torch's meaning, with a stride TensorFlow's: ``ceil(size / stride)`` pixels.
- ``groups`` divides C and O; groups of a multiple of 32 channels are read in place.
- ``scale``: multiply by the scale ``[O]`` that ``w`` holds, if any; ``x`` must hold none.
- ``bias`` and ``threshold`` are float32 ``[O]``, ``flip`` is bool ``[O]``.
- ``prepared`` is what :func:`prepare` makes of ``w`` and the comparison; kernels that can use it
  are spared the work, others ignore it. On a GPU it says too that ``w`` and the vectors are older
  than the operation before this one, whose end they need not wait for.

:func:`add` keeps integer sums for residual networks, :func:`fbb` and :func:`fbf` are first layers
on float images in fixed point, :func:`max_pool` pools bits.

Every function raises TypeError (type, dtype) or ValueError (shape, device, value) before any
kernel runs. Results carry no gradient; :class:`bitgnn.nn.BinaryConv2d` is the trainable layer.
Source: Li and Su, "Accelerating Binarized Neural Networks via Bit-Tensor-Cores in Turing GPUs",
TPDS 2020.
"""

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.bits.tensor import BitImages
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops.conv_shape import (
    MOST_WEIGHTS,
    Pair,
    check_addend,
    check_fixed_operands,
    check_images,
    check_operands,
    check_prepared,
    check_step,
    flip_words,
    integer_limits,
    pool_window,
    whole_pair,
)
from bitgnn.ops.reference.conv import scaled_dots
from bitgnn.ops.reference.pack import from_words

__all__ = ["add", "bbb", "bbf", "fbb", "fbf", "max_pool", "pad", "prepare"]


def prepare(
    w: BitImages,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    step: float | None = None,
    added: int = 0,
) -> Tensor:
    """Integer form of a kernel's taps and of the comparison after the convolution.

    The comparison of floats is one of integers: ``bit == (total >= limit) ^ turned`` for every
    total in [-K, K]. K is the number of weights of an output; with ``step``, for ``fbb``, 32 768
    times as many; ``added`` more for ``add`` with an addend up to that magnitude. A negative scale
    turns the comparison; one that is never true, as with NaN, has the limit K + 1.

    Args:
        w: kernels ``[O, C / groups, kh, kw]``.
        scale: as given to the operator, and so on up to ``flip``; :func:`~bitgnn.ops.conv.add`
            takes none.
        bias: float32 ``[O]``.
        threshold: float32 ``[O]``.
        flip: bool ``[O]``.
        step: of a first layer.
        added: greatest magnitude of the addend.

    Returns:
        int32 ``[O, kh * kw + 2]``: at each tap the number of set bits, then limit, then turned.

    Raises:
        ValueError: totals exceed int32, or scale or bias is infinite; and as the module says.
    """
    name = "conv.prepare"
    check_images(name, "w", w)
    outputs, height, width, words = w.words.shape
    _arguments.vector(name, "bias", bias, outputs, w.device)
    _arguments.vector(name, "threshold", threshold, outputs, w.device)
    _arguments.vector(name, "flip", flip, outputs, w.device, torch.bool)
    bound = height * width * w.channels
    if step is not None:
        check_step(name, step)
        if bound > MOST_WEIGHTS:
            raise ValueError(
                f"{name}: w must have at most {MOST_WEIGHTS} weights an output, got {bound}"
            )
        bound *= 32768
    if not (added >= 0 and bound + added < 2**31 - 1):
        raise ValueError(f"{name}: added must be at least 0 and totals fit int32, got {added}")
    compared = bias is not None or threshold is not None
    w_scale = w.scale if scale and compared else None
    for argument, value in (("scale of w", w_scale), ("bias", bias)):
        if value is not None and bool(value.isinf().any()):
            raise ValueError(f"{name}: {argument} must not be infinite")

    def holds(total: Tensor) -> Tensor:
        value = scaled_dots(total, w_scale, bias, step or 1.0)
        return value >= (0 if threshold is None else threshold)

    taps = from_words(w.words.reshape(-1, words), w.channels).sum(1, dtype=torch.int32)
    limit, turned = integer_limits(holds, bound + added, w.words.new_empty(outputs))
    turned = turned if flip is None else turned ^ flip
    return torch.cat(
        [taps.view(outputs, -1), limit.to(torch.int32).view(-1, 1), turned.int().view(-1, 1)], 1
    )


def bbb(
    x: BitImages,
    w: BitImages,
    *,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    scale: bool = True,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    prepared: Tensor | None = None,
    pool: Pair | None = None,
    pool_flip: Tensor | None = None,
) -> BitImages:
    """Bits of ``scale[o] * dot + bias[o] >= threshold[o]`` (0 without one), turned where ``flip``.

    With neither bias nor threshold the scale, which is positive, is never computed. ``pool``, a
    number or pair, max-pools the bits as :func:`max_pool` with that kernel and stride does, and
    ``pool_flip``, bool ``[O]``, is its ``flip``; a GPU does both in one launch where it can.

    Returns:
        Images ``[N, O, out height, out width]``, pooled where ``pool`` is given.
    """
    name = "conv.bbb"
    shape = check_operands(name, x, w, stride, padding, dilation, groups)
    outputs = w.words.size(0)
    check_prepared(name, prepared, w)
    w_scale = w.scale if scale else None
    size = shape.output_size(x.words.shape[1:3], w.words.shape[1:3])
    window, turned = pool_window(name, pool, pool_flip, outputs, size, x.device)
    given = (w_scale, bias, threshold, flip, prepared, window, turned)
    words = call(name, "conv_bbb", x.words, w.words, x.channels, *shape, groups, *given)
    return BitImages._trusted(words, outputs)


def bbf(
    x: BitImages,
    w: BitImages,
    *,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    scale: bool = True,
    bias: Tensor | None = None,
    integer: bool = False,
    prepared: Tensor | None = None,
) -> Tensor:
    """``scale[o] * dot + bias[o]`` in float32, or ``dot`` in int32 with ``integer``.

    Returns:
        ``[N, O, out height, out width]`` in the channels_last memory format.
    """
    name = "conv.bbf"
    shape = check_operands(name, x, w, stride, padding, dilation, groups)
    _arguments.no_bias_with_integer(name, bias, integer)
    check_prepared(name, prepared, w)
    w_scale = w.scale if scale and not integer else None
    given = (w_scale, bias, integer, prepared)
    result = call(name, "conv_bbf", x.words, w.words, x.channels, *shape, groups, *given)
    return result.permute(0, 3, 1, 2)


def add(
    x: BitImages,
    w: BitImages,
    *,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    addend: Tensor | None = None,
    addend_stride: Pair = 1,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    wide: bool = False,
    sums: bool = True,
    bits: bool = True,
    prepared: Tensor | None = None,
) -> tuple[Tensor | None, BitImages | None]:
    r"""Integer sums of a residual block and their bits: ``total = dot + addend``.

    ``total[i, c, y, x] = dot + (c < a ? addend[i, c, y * s, x * t] : 0)`` with (s, t) the
    ``addend_stride``: the type-A shortcut, channels that the addend lacks being 0. Bits are
    ``(total >= threshold[c]) ^ flip[c]``, compared in float32. Scales of ``w`` take no part.

    ``addend`` is int16 or int32 ``[N, a, h, w]``, a <= O, with as many pixels at the strides as the
    result has; channels_last is read in place. The threshold is 0 without one. Sums are int32 with
    ``wide``, else int16, to whose range totals are clamped. ``sums`` and ``bits`` say what to
    return.

    Returns:
        Totals ``[N, O, out height, out width]`` in channels_last, and their bits; None in the place
        of what is not asked for.

    Raises:
        ValueError: nothing is asked for; and as the module says.

    Source: Li and Su, "Accelerating Binarized Neural Networks via Bit-Tensor-Cores in Turing GPUs",
    TPDS 2020, residuals of ResNet.
    """
    name = "conv.add"
    shape = check_operands(name, x, w, stride, padding, dilation, groups)
    steps = whole_pair(name, "addend_stride", addend_stride, 1)
    outputs = w.words.size(0)
    if not sums and not bits:
        raise ValueError(f"{name}: sums or bits must be asked for, got neither")
    check_prepared(name, prepared, w)
    if addend is not None:
        places = shape.output_size(x.words.shape[1:3], w.words.shape[1:3])
        check_addend(name, addend, x, outputs, places, steps)
        addend = addend.permute(0, 2, 3, 1)
    given = (addend, steps, threshold, flip, wide, sums, bits, prepared)
    numbers = (x.channels, *shape, groups)
    totals, words = call(name, "conv_add", x.words, w.words, *numbers, *given)
    return (
        totals.permute(0, 3, 1, 2) if sums else None,
        BitImages._trusted(words, outputs) if bits else None,
    )


def fbb(
    x: Tensor,
    w: BitImages,
    step: float,
    *,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    scale: bool = True,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    prepared: Tensor | None = None,
) -> BitImages:
    """The first layer of a network: bits of ``v >= threshold[o]``, turned where ``flip``.

    Images are taken in fixed point: with ``q = clamp(round(x / step), -32768, 32767)``, halves to
    even and NaN as 0, ``dot`` is the sum of ``q * w`` over the taps inside the image, an exact
    integer, and ``v = scale[o] * (step * dot) + bias[o]``, every step rounded to float32. uint8
    images are taken as they are, with step 1. A fully connected first layer is a convolution of
    images of 1 x 1 with a channel for each feature. With neither bias nor threshold the scale,
    which is positive, is never computed.

    ``x`` is float32, float16, bfloat16 or uint8 ``[N, C, H, W]``; contiguous and channels_last are
    read in place. ``w`` holds kernels ``[O, C, kh, kw]`` of at most 65 535 weights each, ``step``
    is a power of two, the unit of the fixed point, 1 for uint8, and ``prepared`` comes from
    ``prepare(w, step=step, ...)``.

    Returns:
        Images ``[N, O, out height, out width]``.
    """
    name = "conv.fbb"
    shape = check_fixed_operands(name, x, w, step, stride, padding, dilation)
    outputs = w.words.size(0)
    check_prepared(name, prepared, w)
    w_scale = w.scale if scale else None
    words = call(
        name, "conv_fbb", x, w.words, step, *shape, w_scale, bias, threshold, flip, prepared
    )
    return BitImages._trusted(words, outputs)


def fbf(
    x: Tensor,
    w: BitImages,
    step: float,
    *,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    scale: bool = True,
    bias: Tensor | None = None,
    integer: bool = False,
) -> Tensor:
    """``v`` in float32, or ``dot`` in int32 with ``integer``; arguments as in :func:`fbb`.

    Returns:
        ``[N, O, out height, out width]`` in the channels_last memory format.
    """
    name = "conv.fbf"
    shape = check_fixed_operands(name, x, w, step, stride, padding, dilation)
    _arguments.no_bias_with_integer(name, bias, integer)
    w_scale = w.scale if scale and not integer else None
    result: Tensor = call(name, "conv_fbf", x, w.words, step, *shape, w_scale, bias, integer)
    return result.permute(0, 3, 1, 2)


def pad(x: BitImages, padding: Pair) -> BitImages:
    """Images with pixels of -1 around them, words of 0, for convolutions without padding.

    Args:
        x: images ``[N, C, H, W]``.
        padding: number or pair (height, width) of pixels on each side.

    Returns:
        Images ``[N, C, H + 2 * height, W + 2 * width]``; the scale of ``x`` is left out.
    """
    check_images("conv.pad", "x", x)
    height, width = whole_pair("conv.pad", "padding", padding, 0)
    words = functional.pad(x.words, (0, 0, width, width, height, height))
    return BitImages._trusted(words, x.channels)


def max_pool(
    x: BitImages,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    *,
    flip: Tensor | None = None,
) -> BitImages:
    """The greatest bit of each window: OR over its pixels inside the image.

    Signs of a max-pooled image are the max-pooled signs, and of one pooled after a negative gain
    the min-pooled ones: ``flip`` marks channels of which the least bit is taken.

    Args:
        x: images ``[N, C, H, W]`` with pixels.
        kernel_size: number or pair.
        stride: number or pair, the kernel's size without one.
        padding: number or pair, at most half of the kernel, as torch asks for.
        flip: bool ``[C]``.

    Returns:
        Images ``[N, C, out height, out width]``, as ``torch.nn.MaxPool2d`` makes them;
        the scale of ``x`` is left out.
    """
    name = "conv.max_pool"
    check_images(name, "x", x)
    kernel = whole_pair(name, "kernel_size", kernel_size, 1)
    steps = kernel if stride is None else whole_pair(name, "stride", stride, 1)
    height, width = whole_pair(name, "padding", padding, 0)
    if not (2 * height <= kernel[0] and 2 * width <= kernel[1]):
        raise ValueError(
            f"{name}: padding must be at most half of the kernel {kernel}, got {padding!r}"
        )
    size = x.words.shape[1:3]
    if not (
        min(size) >= 1 and kernel[0] <= size[0] + 2 * height and kernel[1] <= size[1] + 2 * width
    ):
        raise ValueError(
            f"{name}: the kernel must be no larger than the padded image, "
            f"{[size[0] + 2 * height, size[1] + 2 * width]}, got {list(kernel)}"
        )
    _arguments.vector(name, "flip", flip, x.channels, x.device, torch.bool)
    sides = height, height, width, width
    words = torch.ops.bitgnn.pool_bits(x.words, kernel, steps, sides, flip_words(flip))
    return BitImages._trusted(words, x.channels)
