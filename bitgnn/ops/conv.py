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

from torch import Tensor

from bitgnn.bits.images import BitImages
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops._bit_pool import max_pool, pool_window
from bitgnn.ops._conv_add import add
from bitgnn.ops._conv_prepare import prepare
from bitgnn.ops._fixed_conv import fbb, fbf
from bitgnn.ops.conv_shape import Pair, check_operands, check_prepared

__all__ = ["add", "bbb", "bbf", "fbb", "fbf", "max_pool", "prepare"]


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
