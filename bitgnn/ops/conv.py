r"""Binary convolution: packed images times packed kernels, to bits, values or sums.

``x`` is :class:`~bitgnn.bits.BitImages` ``[N, C, H, W]``, ``w`` ``[O, C / groups, kh, kw]`` as in
``torch.nn.Conv2d``. ``dot`` is the sum of the products of +-1 over the taps of the kernel inside
the image, an exact integer: taps outside are left out, as torch's convolution does with zeros
around the image, and do not count as -1.

- ``stride``, ``dilation``: a number or a pair (height, width), at least 1.
- ``padding``: a number, a pair (height, width), or ``"valid"`` or ``"same"`` (stride 1) with
  torch's meaning.
- ``groups`` divides C and O; groups of a multiple of 32 channels are read in place.
- ``scale``: multiply by the scale ``[O]`` that ``w`` holds, if any; ``x`` must hold none.
- ``bias`` and ``threshold`` are float32 ``[O]``, ``flip`` is bool ``[O]``.
- ``prepared`` is what :func:`prepare` makes of ``w`` and the comparison; kernels that can use it
  are spared the work, others ignore it. On a GPU it says too that ``w`` and the vectors are older
  than the operation in front of this one, whose end they need not wait for.

:func:`add` keeps integer sums for residual networks, :func:`fbb` and :func:`fbf` are first layers
on float images in fixed point, :func:`max_pool` pools bits.

Every function raises TypeError (type, dtype) or ValueError (shape, device, value) before any
kernel runs. Results carry no gradient; :class:`bitgnn.nn.BinaryConv2d` is the trainable layer.
Source: Li and Su, "Accelerating Binarized Neural Networks via Bit-Tensor-Cores in Turing GPUs",
TPDS 2020.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from bitgnn._checks import check_value
from bitgnn.bits.tensor import BitImages
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops._bit_pool import max_pool, pool_window
from bitgnn.ops._conv_add import add
from bitgnn.ops._fixed_conv import MOST_WEIGHTS, check_step, fbb, fbf
from bitgnn.ops.conv_shape import Pair, check_images, check_operands, check_prepared
from bitgnn.ops.reference.conv import scaled_dots
from bitgnn.ops.reference.pack import from_words

__all__ = ["add", "bbb", "bbf", "fbb", "fbf", "max_pool", "prepare"]


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
    """Integers that stand for a kernel's taps and for the comparison behind a convolution.

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
        TypeError: a type or dtype does not fit.
        ValueError: a shape, device or number does not fit, totals exceed int32, or scale or bias is
            infinite.
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
        check_value(
            bound <= MOST_WEIGHTS,
            lambda: f"{name}: w must have at most {MOST_WEIGHTS} weights an output, got {bound}",
        )
        bound *= 32768
    check_value(
        added >= 0 and bound + added < 2**31 - 1,
        lambda: f"{name}: added must be at least 0 and totals fit int32, got {added}",
    )
    compared = bias is not None or threshold is not None
    w_scale = w.scale if scale and compared else None
    for argument, value in (("scale of w", w_scale), ("bias", bias)):
        check_value(
            value is None or not bool(value.isinf().any()),
            lambda argument=argument: f"{name}: {argument} must not be infinite",  # type: ignore[misc]
        )
    taps = from_words(w.words.reshape(-1, words), w.channels).sum(1, dtype=torch.int32)
    limit, turned = _limits(w, bound + added, w_scale, bias, threshold, step or 1.0)
    turned = turned if flip is None else turned ^ flip
    return torch.cat(
        [taps.view(outputs, -1), limit.to(torch.int32).view(-1, 1), turned.int().view(-1, 1)], 1
    )


def _limits(
    w: BitImages,
    bound: int,
    w_scale: Tensor | None,
    bias: Tensor | None,
    threshold: Tensor | None,
    step: float,
) -> tuple[Tensor, Tensor]:
    """Limits, and where a negative scale turns the comparison: int64 and bool [O]."""

    def holds(total: Tensor) -> Tensor:
        value = scaled_dots(total, w_scale, bias, step)
        return value >= (0 if threshold is None else threshold)

    return integer_limits(holds, bound, w.words.new_empty(len(w.words)))


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


def integer_limits(
    bit: Callable[[Tensor], Tensor], bound: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Limits for which ``bit(total) == (total >= limit) ^ turned``, found by bisection.

    Args:
        bit: booleans ``[O]`` of int64 totals ``[O]``, monotone in each of them.
        bound: totals lie in ``[-bound, bound]``.
        like: ``[O]`` on the device of ``bit``.

    Returns:
        int64 limits in ``[-bound, bound + 1]``, and where the comparison is reversed. What is
        always true has the limit ``-bound``, what never is has ``bound + 1``; neither is turned.
    """
    below = torch.full_like(like, -bound, dtype=torch.int64)
    limit, turned = torch.full_like(below, bound + 1), bit(below)
    # The first total with another bit than the lowest one has.
    for _ in range((2 * bound + 1).bit_length()):
        middle = torch.div(below + limit, 2, rounding_mode="floor")
        changed = bit(middle) != turned
        limit, below = torch.where(changed, middle, limit), torch.where(changed, below, middle)
    always = turned & (limit > bound)
    return torch.where(always, -bound, limit), turned & ~always
