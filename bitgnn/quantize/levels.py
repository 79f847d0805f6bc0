"""Rounding to a few integers whose step is learnt: the activations of BWTA, and LSQ's gradients."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn._checks import name_type
from bitgnn._interpreter import with_signature
from bitgnn.quantize.first_order import first_order

LEAST_SCALE = 1e-8
"""Value of a scale that training drove to zero or below."""


class Rounding(NamedTuple):
    """Integers that activations become: those in [lowest, highest], or their signs."""

    lowest: int
    highest: int
    sign: bool = False


class Operand(NamedTuple):
    """An operand of a function that gives all gradients of a product itself.

    ``q`` are integers of the activations ``x`` and ``scale`` the guarded value of the learnt
    ``parameter``, both without gradients. Without ``rounding``, ``q`` is ``x`` and the scale 1.
    """

    x: Tensor
    parameter: Tensor
    q: Tensor
    scale: Tensor
    rounding: Rounding | None


def positive_scale(scale: Tensor, least: float = LEAST_SCALE) -> Tensor:
    """``scale`` in float32, at least ``least``; for use without gradients.

    An optimiser's step may take a scale below zero, where no comparison with it means anything;
    the next ones can take it back, as the gradients of what it scales pass the guard.
    """
    return scale.float().clamp(min=least)


@torch.no_grad()
def initial_scale(
    x: Tensor, level: int = 1, signed: bool = True, valid: Tensor | None = None
) -> Tensor:
    r"""The scale that training starts from: :math:`2\,\mathrm{mean}|x| / \sqrt{L}`, 0-d float32.

    Without ``signed``, what is negative counts as 0; values where ``valid`` (bool that broadcasts
    to ``x``) is False do not count.
    """
    magnitude = x.float().abs() if signed else x.float().clamp(min=0)
    if valid is None:
        mean = magnitude.sum() / max(x.numel(), 1)
    else:
        valid = valid.expand_as(x)
        mean = torch.where(valid, magnitude, 0.0).sum() / valid.sum().clamp(min=1)
    return mean * (2.0 / math.sqrt(level))


def _as_it_lies(x: Tensor) -> tuple[Tensor, tuple[int, ...] | None]:
    """``x`` with its dimensions in their order in memory, and the permutation that undoes this.

    Heads are taken out of features without a copy: element-wise operators need none either.
    """
    if x.is_contiguous() or torch.compiler.is_compiling():
        return x, None
    strides = x.stride()
    order = sorted(range(x.dim()), key=lambda dim: -strides[dim])
    return x.permute(order), tuple(order.index(dim) for dim in range(x.dim()))


def rounded(x: Tensor, scale: Tensor, rounding: Rounding) -> Tensor:
    """The integers of ``x / scale``, float32; without gradients."""
    if rounding.sign:
        return torch.where(x >= 0, 1.0, -1.0).float()
    x, order = _as_it_lies(x.float())
    q: Tensor = torch.ops.bitgnn.round_levels(x, scale, rounding.lowest, rounding.highest)
    return q if order is None else q.permute(order)


def clipped_gradients(
    grad: Tensor, x: Tensor, scale: Tensor, rounding: Rounding, gain: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""Gradients, in ``x`` and ``scale``, of the clip that stands in for rounding.

    ``grad`` is that of the integers q; with ``gain`` g it is that of :math:`g s q`, and the
    gradients are LSQ's. NaN passes nothing.
    """
    lowest, highest, sign = rounding
    wide, order = _as_it_lies(x.float())
    wanted = grad.float()
    if order is not None:
        wanted = wanted.permute(sorted(range(x.dim()), key=order.__getitem__))
    passed, grad_scale = torch.ops.bitgnn.clip_gradients(
        wanted, wide, scale, lowest, highest, gain, sign
    )
    if order is not None:
        passed = passed.permute(order)
    return passed.to(x.dtype), grad_scale


def operand_gradients(
    grad: Tensor, x: Tensor, scale: Tensor, rounding: Rounding | None, gain: Tensor
) -> tuple[Tensor, Tensor | None]:
    """LSQ's gradients of an operand and of its learnt scale, from that of ``gain * scale * q``."""
    if rounding is None:
        return (gain * grad).to(x.dtype), None
    return clipped_gradients(grad, x, scale, rounding, gain)


class _Quantised(torch.autograd.Function):
    @staticmethod
    @with_signature
    def forward(
        x: Tensor, parameter: Tensor, rounding: Rounding, least: float
    ) -> tuple[Tensor, Tensor]:
        scale = positive_scale(parameter, least)
        return rounded(x, scale, rounding), scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, parameter, ctx.rounding, _ = inputs
        ctx.dtype = parameter.dtype
        if not ctx.needs_input_grad[1]:
            ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, output[1])

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor, grad_scale: Tensor) -> tuple[Tensor | None, ...]:
        x, scale = ctx.saved_tensors
        grad_x, clipped = clipped_gradients(grad, x, scale, ctx.rounding)
        if not ctx.needs_input_grad[1]:
            return grad_x, None, None, None
        # Sums over n values would move the scale faster than the weights. A compiler may leave n
        # open, hence the symbolic functions.
        root = torch.sym_sqrt(torch.sym_max(x.numel(), 1) * ctx.rounding.highest)
        return grad_x, ((clipped + grad_scale) * (1.0 / root)).to(ctx.dtype), None, None


def quantised(
    x: Tensor, parameter: Tensor, rounding: Rounding, least: float = LEAST_SCALE
) -> tuple[Tensor, Tensor]:
    """Float32 integers of activations (NaN becomes 0), and the 0-d float32 scale, guarded.

    The gradients of the integers are those of ``x / scale`` clipped; with the product of both
    formed by the caller they add up to LSQ's, see :func:`bitgnn.quantize.levels`.
    """
    if not torch.is_grad_enabled():  # calling a function of autograd takes longer than the rest
        return _Quantised.forward(x, parameter, rounding, least)
    q, scale = _Quantised.apply(x, parameter, rounding, least)
    return q, scale


def check_level(name: str, level: Any) -> int:
    """``level`` if it is an integer of at least 1, else a TypeError or ValueError."""
    if not isinstance(level, int) or isinstance(level, bool):
        raise TypeError(f"{name}: level must be an integer, got {name_type(level)}")
    if level < 1:
        raise ValueError(f"{name}: level must be at least 1, got {level}")
    return int(level)


def _checked_scale(scale: Any, device: torch.device) -> Tensor:
    """``scale`` as a 0-d float tensor; values on a GPU are not looked at, which would wait."""
    if not isinstance(scale, Tensor):
        if not isinstance(scale, int | float) or isinstance(scale, bool):
            got = name_type(scale)
            raise TypeError(f"levels: scale must be a number or a 0-d tensor, got {got}")
        _check_positive(float(scale))
        return torch.tensor(float(scale), dtype=torch.float32, device=device)
    if not scale.is_floating_point():
        raise TypeError(f"levels: scale must be a float tensor, got {name_type(scale)}")
    if scale.dim() != 0:
        raise ValueError(f"levels: scale must be 0-d, got {list(scale.shape)}")
    if scale.device != device:
        raise ValueError(f"levels: scale must be on {device} like x, got {scale.device}")
    if device.type == "cpu" and not torch.compiler.is_compiling():
        _check_positive(float(scale.detach()))
    return scale


def _check_positive(scale: float) -> None:
    if not 0 < scale < math.inf:
        raise ValueError(f"levels: scale must be positive and finite, got {scale}")


def levels(x: Tensor, scale: Tensor | float, level: int, signed: bool = True) -> Tensor:
    r"""Nearest of the values :math:`s\,q`, q an integer in [-L, L], or [0, L] if not ``signed``.

    :math:`q = \mathrm{clip}(\lfloor x / s + 1/2 \rfloor, l, L)`: halves round up. With L = 1 these
    are :func:`ternary` and :func:`boolean`, decided by :math:`x \ge 0.5 s` and
    :math:`x < -0.5 s` in float32. NaN becomes 0.

    Backward, as in LSQ (Esser et al., "Learned Step Size Quantization", ICLR 2020): straight
    through to ``x`` where :math:`l \le x / s \le L`, else 0; to ``s`` the sum of
    :math:`q - x / s` there and of :math:`q` elsewhere, times :math:`1 / \sqrt{n L}` for n values.

    Args:
        x: float32, float16 or bfloat16 of any shape.
        scale: s, a number or a 0-d tensor on the device of ``x``; positive.
        level: L, at least 1.
        signed: whether there are negative values.

    Returns:
        Tensor like ``x``.

    Raises:
        TypeError: ``x`` holds no floats, ``scale`` is no float or ``level`` no integer.
        ValueError: ``scale`` is not positive and finite (looked at on the CPU), has dimensions or
            is elsewhere, or ``level`` is below 1.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(f"levels: x must be a float tensor, got {name_type(x)}")
    level = check_level("levels", level)
    rounding = Rounding(-level if signed else 0, level)
    q, s = quantised(x, _checked_scale(scale, x.device), rounding, least=0.0)
    return (s * q).to(x.dtype)


def ternary(x: Tensor, scale: Tensor | float) -> Tensor:
    r"""``s`` where :math:`x \ge 0.5 s`, ``-s`` where :math:`x < -0.5 s`, else 0 (also for NaN).

    :func:`levels` with L = 1: the bits of :func:`bitgnn.ops.ternary.pack_ternary` times the scale.
    Arguments, result and errors are those of :func:`levels`.

    Source: Ding et al., "BWTA: Accurate and Efficient Binarized Transformer by Algorithm-Hardware
    Co-design".
    """
    return levels(x, scale, 1)


def boolean(x: Tensor, scale: Tensor | float) -> Tensor:
    r"""``s`` where :math:`x \ge 0.5 s`, else 0 (also for NaN).

    For attention probabilities and the values after a ReLU: :func:`levels` with L = 1 and no
    signs, the bits of :func:`bitgnn.ops.ternary.pack_bool` times the scale. Arguments, result and
    errors are those of :func:`levels`.

    Source: as of :func:`ternary`.
    """
    return levels(x, scale, 1, signed=False)
