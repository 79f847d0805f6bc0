"""8-bit rows times 8-bit weights: letter I of BMM.xyz, for dense features of a first layer.

A row of K features is K signed codes, padded with zeros to whole pieces of 16 bytes: int8
``[N, C]`` with ``C = 16 * ceil(K / 16)``. Weights are int8 ``[M, C]``, of
:func:`quantise_weight`. ``dot[i, o] = sum_k x[i, k] w[o, k]`` is an exact int32, so K is at most
:data:`~bitgnn.ops.reference.int8.MOST_FEATURES`.

- x = I takes codes; x = F floats (float32, float16 or bfloat16), quantised inside:
  ``clamp(rint((x - centre) * inverse_step), -127, 127)``, NaN as 0, with float32 ``[K]`` scales.
- z = F: float32 ``scale[o] * dot + shift[o] + addend[i, o]``, every step rounded on its own.
- z = B: bit of ``dot >= threshold[o]`` (int32, 0 without one), inverted where ``flip[o]``. With an
  addend, bit of ``scale[o] * dot + shift[o] + addend[i, o] >= threshold[o]`` (float32).

Every function raises TypeError (type, dtype) or ValueError (shape, device, value) before any
kernel runs. ``scale`` and ``shift`` are float32 vectors, ``flip`` a bool one. Operators are for
inference: results carry no gradient.
"""

import torch
from torch import Tensor

from bitgnn._checks import name_type
from bitgnn.bits import BitTensor
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops.reference.int8 import LARGEST, MOST_FEATURES, SOURCES, padded, to_codes
from bitgnn.ops.reference.table import code_bytes


def quantise_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes and scales of weights ``[M, K]`` as in ``torch.nn.Linear``.

    ``s[o] = max_k |weight[o, k]| / 127``, 1 for a row of zeros, and
    ``w[o, k] = clamp(rint(weight[o, k] / s[o]), -127, 127)``, computed in float32. A row with
    infinity or NaN has a scale that is neither, so its results are no numbers either.

    Returns:
        int8 ``[M, C]``, padded, and float32 ``[M]``.

    Raises:
        TypeError: ``weight`` is no dense floating-point tensor.
        ValueError: it does not have two dimensions.
    """
    _arguments.float_matrix("quantise_weight", "weight", weight)
    wide = weight.detach().to(torch.float32)
    largest = wide.abs().amax(1) if wide.size(1) else wide.new_zeros(wide.size(0))
    scale = largest / LARGEST
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return padded(to_codes(wide / scale.unsqueeze(1))), scale


def pack_int8(x: Tensor, centre: Tensor, inverse_step: Tensor) -> Tensor:
    """Codes int8 ``[N, C]`` of float rows ``[N, K]``; see the module for formula and errors."""
    _check_floats("pack_int8", x, centre, inverse_step)
    codes: Tensor = call("pack_int8", "pack_int8", x, centre, inverse_step)
    return codes


def iif(
    x: Tensor,
    w: Tensor,
    size: int,
    *,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    addend: Tensor | None = None,
) -> Tensor:
    """Codes times 8-bit weights to float32; see the module for formula, shapes and errors."""
    name = "bmm.iif"
    _check_codes(name, x, w, size)
    if addend is not None:
        _check_addend(name, addend, x, w)
    values: Tensor = call(name, "bmm_iif", x, w, size, scale, shift, addend)
    return values


def iib(
    x: Tensor,
    w: Tensor,
    size: int,
    *,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
) -> BitTensor:
    """Codes times 8-bit weights to bits; see the module for formula, shapes and errors."""
    name = "bmm.iib"
    _check_codes(name, x, w, size)
    words = call(name, "bmm_iib", x, w, size, threshold, flip)
    return BitTensor._trusted(words, w.size(0))


def add_iib(
    x: Tensor,
    w: Tensor,
    addend: Tensor,
    size: int,
    *,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    threshold: Tensor | None = None,
) -> BitTensor:
    """The bits of a sum; see the module for formula, shapes and errors."""
    name = "bmm.add_iib"
    _check_codes(name, x, w, size)
    _check_addend(name, addend, x, w)
    words = call(name, "bmm_add_iib", x, w, addend, size, scale, shift, threshold)
    return BitTensor._trusted(words, w.size(0))


def fif(
    x: Tensor,
    centre: Tensor,
    inverse_step: Tensor,
    w: Tensor,
    *,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
) -> Tensor:
    """Floats times 8-bit weights to float32; see the module for formula, shapes and errors."""
    name = "bmm.fif"
    _check_floats(name, x, centre, inverse_step, w)
    values: Tensor = call(name, "bmm_fif", x, centre, inverse_step, w, scale, shift)
    return values


def fib(
    x: Tensor,
    centre: Tensor,
    inverse_step: Tensor,
    w: Tensor,
    *,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
) -> BitTensor:
    """Floats times 8-bit weights to bits; see the module for formula, shapes and errors."""
    name = "bmm.fib"
    _check_floats(name, x, centre, inverse_step, w)
    words = call(name, "bmm_fib", x, centre, inverse_step, w, threshold, flip)
    return BitTensor._trusted(words, w.size(0))


def _check_codes(name: str, x: Tensor, w: Tensor, size: int) -> None:
    """Require rows and weights of so many features on one device."""
    if not 0 <= size <= MOST_FEATURES:
        raise ValueError(f"{name}: size must lie between 0 and {MOST_FEATURES}, got {size}")
    _check_rows(name, "x", x, size)
    _check_rows(name, "w", w, size)
    _arguments.same_device(name, "w", w.device, x.device)


def _check_rows(name: str, operand: str, rows: Tensor, size: int) -> None:
    if not (isinstance(rows, Tensor) and rows.dtype == torch.int8):
        raise TypeError(f"{name}: {operand} must be a torch.int8 tensor, got {name_type(rows)}")
    width = code_bytes(size)
    if not (rows.dim() == 2 and rows.size(1) == width):
        raise ValueError(
            f"{name}: {operand} must have shape [rows, {width}] for {size} features, got "
            f"{list(rows.shape)}"
        )


def _check_floats(
    name: str, x: Tensor, centre: Tensor, inverse_step: Tensor, w: Tensor | None = None
) -> None:
    """Require floats, their scales and, where given, weights of as many features."""
    _arguments.float_matrix(name, "x", x)
    if x.dtype not in SOURCES:
        raise TypeError(f"{name}: x must be float32, float16 or bfloat16, got {x.dtype}")
    size = x.size(1)
    if size > MOST_FEATURES:
        raise ValueError(f"{name}: x must have at most {MOST_FEATURES} features, got {size}")
    for operand, vector in (("centre", centre), ("inverse_step", inverse_step)):
        if vector is None:
            raise TypeError(f"{name}: {operand} must be a torch.float32 tensor, got None")
        _arguments.vector(name, operand, vector, size, x.device)
    if w is not None:
        _check_rows(name, "w", w, size)
        _arguments.same_device(name, "w", w.device, x.device)


def _check_addend(name: str, addend: Tensor, x: Tensor, w: Tensor) -> None:
    if not (isinstance(addend, Tensor) and addend.dtype == torch.float32):
        raise TypeError(f"{name}: addend must be a torch.float32 tensor, got {name_type(addend)}")
    shape = [x.size(0), w.size(0)]
    if list(addend.shape) != shape:
        raise ValueError(f"{name}: addend must have shape {shape}, got {list(addend.shape)}")
    _arguments.same_device(name, "addend", addend.device, x.device)
