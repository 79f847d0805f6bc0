"""Ternary values: signs of what is large, 0 for what is small."""

from __future__ import annotations

from torch import Tensor

from bitgnn.quantize.levels import levels

__all__ = ["ternary"]


def ternary(x: Tensor, scale: Tensor | float) -> Tensor:
    r"""``s`` where :math:`x \ge 0.5 s`, ``-s`` where :math:`x < -0.5 s`, else 0 (also for NaN).

    The bits of :func:`bitgnn.ops.ternary.pack_ternary` times the scale, with the gradients of
    :func:`levels`.

    Source: Ding et al., "BWTA: Accurate and Efficient Binarized Transformer by Algorithm-Hardware
    Co-design".

    Args:
        x: float32, float16 or bfloat16 of any shape.
        scale: s, a number or a 0-d tensor on the device of ``x``; positive.

    Returns:
        Tensor like ``x``.

    Raises:
        TypeError: ``x`` or ``scale`` holds no floats.
        ValueError: ``scale`` is not positive and finite (looked at on the CPU), has dimensions or
            is elsewhere.
    """
    return levels(x, scale, 1)
