"""BMM.xyz: the binary matrix products, letters for activation, weight and output.

F stands for a full-precision operand or result (a tensor), B for bits (a ``BitTensor``), T for
ternary activations (a ``TernaryTensor``), I for 8-bit rows (:mod:`bitgnn.ops.int8`). ``x`` is
``[N, K]``, ``w`` ``[M, K]`` as in ``torch.nn.Linear``, the result ``[N, M]``. ``dot`` is the sum of
the products of +-1 values, an exact integer.

- F operands (any floating-point dtype, or uint8) are binarised inside: ``sgn(x - x_threshold)``,
  ``sgn(w)``; with ``scale`` the mean magnitude of each row (of ``(x - x_threshold) * x_gain`` for
  x) is taken in the same pass. B operands bring the scale they hold, if any.
- z = F: float32 ``(x_scale[i] * w_scale[o]) * dot + bias[o]``; scales are left out with
  ``scale=False``; ``integer=True`` returns ``dot`` as int32.
- z = B: bit of ``result >= threshold[o]`` (0 without one), inverted where ``flip[o]``. Without
  bias and threshold no scale is computed, as a positive one cannot change the bit.

- ``transpose_x`` and ``transpose_w`` of the products of bits: the operand is stored the other way
  round, ``[K, N]`` or ``[K, M]``, its rows packed along N or M. With A as x and B as w the four
  combinations are A Bᵀ, Aᵀ Bᵀ, A B and Aᵀ B. Such an operand holds no scale; it is transposed in
  front of the product (:meth:`BitTensor.t <bitgnn.BitTensor.t>`), which costs one pass over bits.

Every function raises TypeError (type, dtype) or ValueError (shape, device, value) before any
kernel runs. ``bias``, ``threshold``, ``x_threshold`` and ``x_gain`` are float32 vectors, ``flip``
a bool one. Operators are for inference: results carry no gradient. Source: BitGNN, section 3.
"""

from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BitTensor, TernaryTensor
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops.int8 import add_iib as add_iib
from bitgnn.ops.int8 import fib as fib
from bitgnn.ops.int8 import fif as fif
from bitgnn.ops.int8 import iib as iib
from bitgnn.ops.int8 import iif as iif


def bbb(
    x: BitTensor,
    w: BitTensor,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    transpose_x: bool = False,
    transpose_w: bool = False,
) -> BitTensor:
    """Bits times bits to bits; see the module for formula, shapes and errors."""
    name = "bmm.bbb"
    x, w = _stored(name, "x", x, transpose_x), _stored(name, "w", w, transpose_w)
    rows = check_operands(name, "BB", x, w)
    x_scale, w_scale = (x.scale, w.scale) if scale else (None, None)
    words = call(name, "bmm_bbb", x.words, w.words, x.size, x_scale, w_scale, bias, threshold, flip)
    return BitTensor._trusted(words, rows)


def bbf(
    x: BitTensor,
    w: BitTensor,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    integer: bool = False,
    transpose_x: bool = False,
    transpose_w: bool = False,
) -> Tensor:
    """Bits times bits to float32 or int32; see the module for formula, shapes and errors."""
    name = "bmm.bbf"
    x, w = _stored(name, "x", x, transpose_x), _stored(name, "w", w, transpose_w)
    check_operands(name, "BB", x, w)
    _arguments.no_bias_with_integer(name, bias, integer)
    x_scale, w_scale = (x.scale, w.scale) if scale and not integer else (None, None)
    return call(name, "bmm_bbf", x.words, w.words, x.size, x_scale, w_scale, bias, integer)


def fbb(
    x: Tensor,
    w: BitTensor,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    check_finite: bool = False,
) -> BitTensor:
    """Floats times bits to bits; see the module for formula, shapes and errors."""
    name = "bmm.fbb"
    rows = check_operands(name, "FB", x, w, check_finite)
    words = call(
        name, "bmm_fbb", x, w.words, w.scale, bias, threshold, flip, x_threshold, x_gain, scale
    )
    return BitTensor._trusted(words, rows)


def fbf(
    x: Tensor,
    w: BitTensor,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    integer: bool = False,
    check_finite: bool = False,
) -> Tensor:
    """Floats times bits to float32 or int32; see the module for formula, shapes and errors."""
    name = "bmm.fbf"
    check_operands(name, "FB", x, w, check_finite)
    _arguments.no_bias_with_integer(name, bias, integer)
    scale = scale and not integer
    w_scale = w.scale if scale else None
    return call(name, "bmm_fbf", x, w.words, w_scale, bias, x_threshold, x_gain, scale, integer)


def bfb(
    x: BitTensor,
    w: Tensor,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    check_finite: bool = False,
) -> BitTensor:
    """Bits times floats to bits; see the module for formula, shapes and errors."""
    name = "bmm.bfb"
    rows = check_operands(name, "BF", x, w, check_finite)
    words = call(name, "bmm_bfb", x.words, w, x.scale, bias, threshold, flip, scale)
    return BitTensor._trusted(words, rows)


def bff(
    x: BitTensor,
    w: Tensor,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    integer: bool = False,
    check_finite: bool = False,
) -> Tensor:
    """Bits times floats to float32 or int32; see the module for formula, shapes and errors."""
    name = "bmm.bff"
    check_operands(name, "BF", x, w, check_finite)
    _arguments.no_bias_with_integer(name, bias, integer)
    scale = scale and not integer
    return call(name, "bmm_bff", x.words, w, x.scale if scale else None, bias, scale, integer)


def ffb(
    x: Tensor,
    w: Tensor,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    check_finite: bool = False,
) -> BitTensor:
    """Floats times floats to bits; see the module for formula, shapes and errors."""
    name = "bmm.ffb"
    rows = check_operands(name, "FF", x, w, check_finite)
    words = call(name, "bmm_ffb", x, w, bias, threshold, flip, x_threshold, x_gain, scale)
    return BitTensor._trusted(words, rows)


def tbf(
    x: TernaryTensor,
    w: BitTensor,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    integer: bool = False,
) -> Tensor:
    """Ternary values times bits to float32 or int32; see the module for formula and errors.

    ``x`` is ``[N, K]``; its scale, if any, is one for all rows. Source: BWTA (ternary activations).
    """
    name = "bmm.tbf"
    check_operands(name, "TB", x, w)
    _arguments.no_bias_with_integer(name, bias, integer)
    x_scale, w_scale = (x.scale, w.scale) if scale and not integer else (None, None)
    dtype = torch.int32 if integer else torch.float32
    return call(name, "bmm_tbf", x.words, x.counts, w.words, x.size, x_scale, w_scale, bias, dtype)


def tbb(
    x: TernaryTensor,
    w: BitTensor,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
) -> BitTensor:
    """Ternary values times bits to bits; see the module for formula and errors.

    ``x`` is ``[N, K]``; its scale, if any, is one for all rows. Source: BWTA (ternary activations).
    """
    name = "bmm.tbb"
    rows = check_operands(name, "TB", x, w)
    x_scale, w_scale = (x.scale, w.scale) if scale else (None, None)
    words = call(
        name, "bmm_tbb", x.words, x.counts, w.words, x.size, x_scale, w_scale, bias, threshold, flip
    )
    return BitTensor._trusted(words, rows)


def _stored(name: str, operand: str, bits: BitTensor, transposed: bool) -> BitTensor:
    """An operand with its rows along K, however it is stored."""
    if not transposed:
        return bits
    _arguments.bit_matrix(name, operand, bits)
    if bits.scale is not None:
        raise ValueError(f"{name}: {operand} must hold no scale where it is stored transposed")
    return bits.t()


def check_operands(name: str, letters: str, x: Any, w: Any, check_finite: bool = False) -> int:
    """Check both operands for their letters; return the rows of the weight."""
    is_packed = letters == "BB" and isinstance(x, BitTensor) and isinstance(w, BitTensor)
    if is_packed and w.size == x.size and w.words.device == x.words.device:
        return w.words.size(0)
    features = []
    for operand, letter, value in (("x", letters[0], x), ("w", letters[1], w)):
        if letter == "F":
            _arguments.packable_matrix(name, operand, value, check_finite)
        else:
            check = _arguments.bit_matrix if letter == "B" else _arguments.ternary_matrix
            check(name, operand, value)
        features.append(value.size(1) if letter == "F" else value.size)
    if features[1] != features[0]:
        raise ValueError(f"{name}: w must hold {features[0]} features like x, got {features[1]}")
    _arguments.same_device(name, "w", w.device, x.device)
    rows: int = w.size(0) if letters[1] == "F" else w.words.size(0)
    return rows
