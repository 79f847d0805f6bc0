"""8-bit rows times 8-bit weights: letter I of BMM.xyz, for dense features of a first layer.

``x`` is ``[N, K]``, ``w`` int8 ``[M, 16 * ceil(K / 16)]``, weights of :func:`quantise_weight`
padded with zeros as the rows of an ``Int8Tensor`` are, the result ``[N, M]``.
``dot[i, o] = sum_k x[i, k] w[o, k]``, of the codes, is an exact int32: K is at most
:data:`~bitgnn.bits.int8.MOST_FEATURES`. Centre and step of x act in the weights and the shift.

- x = I: an ``Int8Tensor``. x = F: floats (float32, float16 or bfloat16), whose codes
  ``clamp(rint((x - centre) * inverse_step), -127, 127)``, NaN as 0, are made inside; ``centre`` and
  ``inverse_step`` are float32 ``[K]``.
- z = F: float32 ``scale[o] * dot + shift[o] + addend[i, o]``, every step rounded on its own.
- z = B: bit of ``dot >= threshold[o]`` (int32, 0 without one), inverted where ``flip[o]``;
  of a sum, bit of ``scale[o] * dot + shift[o] + addend[i, o] >= threshold[o]`` (float32).

Every function raises TypeError (type, dtype) or ValueError (shape, device, value) before any
kernel runs. ``scale`` and ``shift`` are float32 vectors, ``flip`` a bool one, ``addend`` float32
``[N, M]``. Operators are for inference: results carry no gradient.
"""

import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits import BitTensor, Int8Tensor
from bitgnn.bits.int8 import MOST, MOST_FEATURES
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops.reference.int8 import SOURCES, padded, to_codes


def quantise_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes and scales of weights ``[M, K]`` as in ``torch.nn.Linear``.

    ``s[o] = max_k |weight[o, k]| / 127``, 1 for a row of zeros, and
    ``w[o, k] = clamp(rint(weight[o, k] / s[o]), -127, 127)``, computed in float32. A row with NaN
    or infinity has such a scale, too, so that its results are no numbers either.

    Returns:
        int8 ``[M, 16 * ceil(K / 16)]``, padded with zeros, and float32 ``[M]``.

    Raises:
        TypeError: ``weight`` is no dense floating-point tensor.
        ValueError: it does not have two dimensions.
    """
    _arguments.float_matrix("quantise_weight", "weight", weight)
    wide = weight.detach().to(torch.float32)
    largest = wide.abs().amax(1) if wide.size(1) else wide.new_zeros(wide.size(0))
    scale = largest / MOST
    scale = scale + (scale == 0)  # one operation fewer than a choice
    return padded(to_codes(wide / scale.unsqueeze(1))), scale


def iif(
    x: Int8Tensor,
    w: Tensor,
    *,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    addend: Tensor | None = None,
) -> Tensor:
    """8-bit rows times 8-bit weights to float32; see the module for formula and errors."""
    name = "bmm.iif"
    check_rows(name, x)
    return call(name, "bmm_iif", x.codes, w, x.size, scale, shift, addend)


def iib(
    x: Int8Tensor, w: Tensor, *, threshold: Tensor | None = None, flip: Tensor | None = None
) -> BitTensor:
    """8-bit rows times 8-bit weights to bits; see the module for formula and errors."""
    name = "bmm.iib"
    check_rows(name, x)
    words = call(name, "bmm_iib", x.codes, w, x.size, threshold, flip)
    return BitTensor._trusted(words, w.size(0))


def add_iib(
    x: Int8Tensor,
    w: Tensor,
    addend: Tensor,
    *,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    threshold: Tensor | None = None,
) -> BitTensor:
    """A product of 8-bit rows plus an addend to bits; see the module for formula and errors."""
    name = "bmm.add_iib"
    check_rows(name, x)
    words = call(name, "bmm_add_iib", x.codes, w, addend, x.size, scale, shift, threshold)
    return BitTensor._trusted(words, w.size(0))


def fif(
    x: Tensor,
    w: Tensor,
    centre: Tensor,
    inverse_step: Tensor,
    *,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
) -> Tensor:
    """Floats times 8-bit weights to float32; see the module for formula and errors."""
    name = "bmm.fif"
    _check_floats(name, x)
    return call(name, "bmm_fif", x, centre, inverse_step, w, scale, shift)


def fib(
    x: Tensor,
    w: Tensor,
    centre: Tensor,
    inverse_step: Tensor,
    *,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
) -> BitTensor:
    """Floats times 8-bit weights to bits; see the module for formula and errors."""
    name = "bmm.fib"
    _check_floats(name, x)
    words = call(name, "bmm_fib", x, centre, inverse_step, w, threshold, flip)
    return BitTensor._trusted(words, w.size(0))


def check_rows(name: str, x: Int8Tensor) -> None:
    """Require 8-bit rows ``[N, K]``."""
    if not isinstance(x, Int8Tensor):
        raise TypeError(f"{name}: x must be an Int8Tensor, got {name_type(x)}")
    if x.codes.dim() != 2:
        raise ValueError(f"{name}: x must have two dimensions, got shape {list(x.shape)}")


def _check_floats(name: str, x: Tensor) -> None:
    _arguments.float_matrix(name, "x", x)
    if x.dtype not in SOURCES:
        raise TypeError(f"{name}: x must be float32, float16 or bfloat16, got {x.dtype}")
    if x.size(1) > MOST_FEATURES:
        raise ValueError(f"{name}: x must have at most {MOST_FEATURES} features, got {x.size(1)}")
