"""Binary convolution whose sums another layer's are added to, for networks with residuals."""

import torch
from torch import Tensor

from bitgnn._checks import check_type, check_value, name_type
from bitgnn.bits.tensor import BitImages
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops.conv_shape import Pair, check_operands, check_prepared, whole_pair


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

    Args:
        x: images ``[N, C, H, W]``.
        w: kernels ``[O, C / groups, kh, kw]``.
        stride: as in :mod:`bitgnn.ops.conv`, and so on up to ``groups``.
        padding: number, pair or name.
        dilation: number or pair.
        groups: divides C and O.
        addend: int16 or int32 ``[N, a, h, w]``, a <= O, whose pixels at the strides are as many as
            the result's; channels_last is read in place.
        addend_stride: at least 1.
        threshold: float32 ``[O]``, 0 without one.
        flip: bool ``[O]``.
        wide: sums as int32 rather than int16, to whose range totals are clamped.
        sums: return the totals.
        bits: return their bits.
        prepared: from :func:`bitgnn.ops.conv.prepare`.

    Returns:
        Totals ``[N, O, out height, out width]`` in channels_last, and their bits; None in the place
        of what is not asked for.

    Raises:
        TypeError: a type or dtype does not fit.
        ValueError: a shape, device or number does not fit, or nothing is asked for.

    Source: Li and Su, "Accelerating Binarized Neural Networks via Bit-Tensor-Cores in Turing GPUs",
    TPDS 2020, residuals of ResNet.
    """
    name = "conv.add"
    shape = check_operands(name, x, w, stride, padding, dilation, groups)
    steps = whole_pair(name, "addend_stride", addend_stride, 1)
    outputs = w.words.size(0)
    check_value(sums or bits, lambda: f"{name}: sums or bits must be asked for, got neither")
    check_prepared(name, prepared, w)
    if addend is not None:
        places = shape.output_size(x.words.shape[1:3], w.words.shape[1:3])
        _check_addend(name, addend, x, outputs, places, steps)
        addend = addend.permute(0, 2, 3, 1)
    given = (addend, steps, threshold, flip, wide, sums, bits, prepared)
    numbers = (x.channels, *shape, groups)
    totals, words = call(name, "conv_add", x.words, w.words, *numbers, *given)
    return (
        totals.permute(0, 3, 1, 2) if sums else None,
        BitImages._trusted(words, outputs) if bits else None,
    )


def _check_addend(
    name: str,
    addend: Tensor,
    x: BitImages,
    outputs: int,
    places: tuple[int, int],
    steps: tuple[int, int],
) -> None:
    check_type(
        isinstance(addend, Tensor) and addend.dtype in (torch.int16, torch.int32),
        lambda: f"{name}: addend must be an int16 or int32 tensor, got {name_type(addend)}",
    )
    check_value(
        addend.dim() == 4
        and addend.size(0) == x.words.size(0)
        and addend.size(1) <= outputs
        and all(-(-addend.size(2 + i) // steps[i]) == places[i] for i in range(2)),
        lambda: (
            f"{name}: addend must have shape [{x.words.size(0)}, at most {outputs}, h, w] with "
            f"{places[0]} x {places[1]} pixels at strides {list(steps)}, got {list(addend.shape)}"
        ),
    )
    _arguments.same_device(name, "addend", addend.device, x.device)
