"""What kernels of convolutions can make of weights and comparison beforehand."""

import torch
from torch import Tensor

from bitgnn._checks import check_value
from bitgnn.bits.images import BitImages
from bitgnn.ops import _arguments
from bitgnn.ops._fixed_conv import MOST_WEIGHTS, check_step
from bitgnn.ops.conv_shape import check_images
from bitgnn.ops.limits import integer_limits
from bitgnn.ops.reference.conv import scaled_dots
from bitgnn.ops.reference.pack import from_words


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
