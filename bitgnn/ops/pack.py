"""Packing floats into bits and back.

Functions raise TypeError (type, dtype) or ValueError (shape, device, option) before any kernel
runs. Results carry no gradient.
"""

import torch
from torch import Tensor

from bitgnn.bits import BitTensor
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call


def pack(
    x: Tensor,
    *,
    threshold: Tensor | None = None,
    scale: str | None = None,
    gain: Tensor | None = None,
    check_finite: bool = False,
) -> BitTensor:
    """Bits of ``x >= threshold`` (0 without one) with, where asked for, the mean of each row.

    With ``threshold`` t and ``gain`` g the scale is the mean of ``|(x - t) * g|`` over a row: what
    ``sgn`` and scale of a batch-normalised row are.

    Args:
        x: ``[N, K]``, any floating-point dtype or uint8; float64 is compared in float64.
        threshold: float32 ``[K]``.
        scale: None or "mean".
        gain: float32 ``[K]``; enters the scale only.
        check_finite: raise where ``x`` holds NaN (which packs to 0) or infinity.
    """
    name = "pack"
    _arguments.packable_matrix(name, "x", x, check_finite)
    size = x.size(1)
    if scale not in (None, "mean"):
        raise ValueError(f"{name}: scale must be None or 'mean', got {scale!r}")
    if scale is None:
        if gain is not None:
            raise ValueError(f"{name}: gain must be None without scale='mean'")
        return BitTensor._trusted(call(name, "pack", x, threshold), size)
    words, means = call(name, "pack_scaled", x, threshold, gain)
    return BitTensor._trusted(words, size, means)


def pack_standardized(
    x: Tensor, *, relu: bool = False, scale: str | None = None, check_finite: bool = False
) -> BitTensor:
    r"""Signs of standardised rows, :math:`s(u) = (u - \mathrm{mean}) / (\mathrm{std} + 10^{-4})`.

    The sign is :math:`u \ge \mathrm{mean}(u)`, so that nothing is divided; ``u`` is ``x``, or
    :math:`\max(x, 0)` with ``relu``. The bits are those of
    ``pack(NodeStandardize()(u))`` (but where the division by a deviation beyond float32 makes a 0
    of a value below the mean): the mean is a float64 sum rounded to float32, and a row with NaN or
    infinity has no bit set.

    Args:
        x: ``[N, K]``, any floating-point dtype or uint8.
        relu: standardise ``max(x, 0)``.
        scale: None, or "mean" for the mean of ``|s(u)|`` of each row, to 1e-5 of the float path.
        check_finite: raise where ``x`` holds NaN or infinity.
    """
    name = "pack_standardized"
    _arguments.packable_matrix(name, "x", x, check_finite)
    if scale not in (None, "mean"):
        raise ValueError(f"{name}: scale must be None or 'mean', got {scale!r}")
    words, means = torch.ops.bitgnn.pack_standardized(x, relu, scale is not None)
    return BitTensor._trusted(words, x.size(1), None if scale is None else means)


def unpack(x: BitTensor) -> Tensor:
    """Float32 ``[N, K]``: +-1, or +-scale where ``x`` has a scale."""
    _arguments.bit_matrix("unpack", "x", x)
    return x.to_float()
