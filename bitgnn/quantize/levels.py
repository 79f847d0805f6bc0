"""Rounding to a few integer levels whose step is learnt: the activations of BWTA."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn._checks import check_type, check_value, name_type
from bitgnn.quantize.learnt_scale import lsq_scale

__all__ = ["check_level", "check_scale", "integer_levels", "levels"]


class _IntegerLevels(torch.autograd.Function):
    """Integers in [lowest, level]; straight through where the clip does not act."""

    @staticmethod
    def forward(x: Tensor, scale: Tensor, lowest: int, level: int) -> Tensor:
        return rounded(x, scale, lowest, level)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, scale, ctx.lowest, ctx.level = inputs
        ctx.save_for_backward(x, scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        x, scale = ctx.saved_tensors
        grad_x, grad_scale = clipped_gradients(grad, x, scale, ctx.lowest, ctx.level)
        return grad_x, grad_scale if ctx.needs_input_grad[1] else None, None, None


def as_it_lies(x: Tensor) -> tuple[Tensor, tuple[int, ...] | None]:
    """``x`` with its dimensions in the order they have in memory.

    Heads are taken out of features without a copy: element-wise operators need none either.

    Returns:
        The tensor, contiguous if ``x`` fills its memory; and the permutation that undoes the change
        of order, None where there is none.
    """
    if x.is_contiguous() or torch.compiler.is_compiling():
        return x, None
    strides = x.stride()
    order = sorted(range(x.dim()), key=lambda dim: -strides[dim])
    return x.permute(order), tuple(order.index(dim) for dim in range(x.dim()))


def rounded(x: Tensor, scale: Tensor, lowest: int, highest: int) -> Tensor:
    """``x / scale`` as integers in [lowest, highest], float32; without gradients."""
    x, order = as_it_lies(x.float())
    levels: Tensor = torch.ops.bitgnn.round_levels(x, scale.float(), lowest, highest)
    return levels if order is None else levels.permute(order)


def clipped_gradients(
    grad: Tensor,
    x: Tensor,
    scale: Tensor,
    lowest: int,
    highest: int,
    gain: Tensor | None = None,
    sign: bool = False,
) -> tuple[Tensor, Tensor]:
    r"""Gradients of ``clip(x / scale, lowest, highest)``: what stands in for those of rounding.

    Args:
        grad: of the result; with ``gain``, of :math:`g s q`.
        x: floats; NaN passes nothing.
        scale: s, 0-d, positive.
        lowest: end of the clip.
        highest: end of the clip.
        gain: g, 0-d float32; with it the gradients are LSQ's of :math:`g s q`.
        sign: q is the sign of ``x``, not its rounded level.

    Returns:
        Gradients of ``x`` and of ``scale``.
    """
    wide, order = as_it_lies(x.float())
    wanted = grad.float()
    if order is not None:
        wanted = wanted.permute(sorted(range(x.dim()), key=order.__getitem__))
    passed, grad_scale = torch.ops.bitgnn.clip_gradients(
        wanted, wide, scale.float(), lowest, highest, gain, sign
    )
    if order is not None:
        passed = passed.permute(order)
    return passed.to(x.dtype), grad_scale.to(scale.dtype)


def check_level(name: str, level: Any) -> int:
    """``level`` if it is an integer of at least 1.

    Raises:
        TypeError: it is no integer.
        ValueError: it is below 1.
    """
    check_type(
        isinstance(level, int) and not isinstance(level, bool),
        lambda: f"{name}: level must be an integer, got {name_type(level)}",
    )
    check_value(level >= 1, lambda: f"{name}: level must be at least 1, got {level}")
    return int(level)


def check_scale(name: str, scale: Any, device: torch.device) -> Tensor:
    """``scale`` as a float tensor without dimensions on ``device``.

    Values on a GPU are not looked at, which would wait for it.

    Raises:
        TypeError: it is neither a number nor a tensor of floats.
        ValueError: it has dimensions, is elsewhere, or is not above 0 and finite.
    """
    if isinstance(scale, Tensor):
        check_type(
            scale.is_floating_point(),
            lambda: f"{name}: scale must be a float tensor, got {name_type(scale)}",
        )
        check_value(scale.dim() == 0, lambda: f"{name}: scale must be 0-d, got {list(scale.shape)}")
        check_value(
            scale.device == device,
            lambda: f"{name}: scale must be on {device} like x, got {scale.device}",
        )
        looked_at = scale.device.type == "cpu" and not torch.compiler.is_compiling()
    else:
        check_type(
            isinstance(scale, int | float) and not isinstance(scale, bool),
            lambda: f"{name}: scale must be a number or a 0-d tensor, got {name_type(scale)}",
        )
        looked_at = True
    if looked_at:
        value = float(scale.detach()) if isinstance(scale, Tensor) else float(scale)
        check_value(
            0 < value < math.inf, lambda: f"{name}: scale must be positive and finite, got {value}"
        )
    if isinstance(scale, Tensor):
        return scale
    return torch.tensor(float(scale), dtype=torch.float32, device=device)


def _check_x(name: str, x: Any) -> None:
    check_type(
        isinstance(x, Tensor) and x.is_floating_point(),
        lambda: f"{name}: x must be a float tensor, got {name_type(x)}",
    )


def integer_levels(x: Tensor, scale: Tensor, level: int, signed: bool = True) -> Tensor:
    r"""The integers :math:`q = \mathrm{clip}(\lfloor x / s + 1/2 \rfloor, l, L)` of :func:`levels`.

    Products of them are exact integers, to be multiplied by the scales behind. The gradients are
    those of :math:`\mathrm{clip}(x / s, l, L)` in ``x`` and in ``s``; with :math:`s q` formed by
    the caller they add up to LSQ's, apart from its factor (:func:`lsq_scale`).

    Args:
        x: floats of any shape; NaN becomes 0.
        scale: 0-d, positive, which is the caller's affair.
        level: L, at least 1.
        signed: l is -L; else 0.

    Returns:
        Float32 tensor like ``x``.
    """
    out: Tensor = _IntegerLevels.apply(x, scale, -level if signed else 0, level)
    return out


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
    _check_x("levels", x)
    level = check_level("levels", level)
    s = lsq_scale(check_scale("levels", scale, x.device), x.numel(), level)
    return (s * integer_levels(x, s, level, signed)).to(x.dtype)


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

    For attention probabilities and the values behind a ReLU: :func:`levels` with L = 1 and no
    signs, the bits of :func:`bitgnn.ops.ternary.pack_bool` times the scale. Arguments, result and
    errors are those of :func:`levels`.

    Source: as of :func:`ternary`.
    """
    return levels(x, scale, 1, signed=False)
