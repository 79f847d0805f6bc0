"""Products of signs with float weights: ``torch.nn.functional.linear`` of packed rows.

The weights are taken to integers of 24 bits with one step an output, which rounds them no more
than adding them up in float32 would, and kept as three digits of 8 bits. The sums of the digits
are exact integers: results are the same on every device and from run to run.
"""

import torch
from torch import Tensor

from bitgnn.bits import BitTensor
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops.reference.bmm import DIGITS, SHIFTS

MOST_FEATURES = 65024
"""Features up to which the sums of digits fit int32."""
LARGEST = 127 * 65536 + 127 * 256 + 127


def weight_digits(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Float weights as digits for :func:`bits_linear`.

    Args:
        weight: finite, floating point ``[M, K]`` as in ``torch.nn.Linear``.

    Returns:
        Digits ``[3, M, ceil(K / 32), 8, 4]`` in int8 and float32 steps ``[M]`` with
        ``weight = (65536 d0 + 256 d1 + d2) * step``, off by half a step, 2**-24 of an output's
        largest weight, at most. Byte ``[t, j]`` of a word is that of its feature ``t + 8 j``.

    Raises:
        ValueError: a weight is NaN or infinite, or the shape is no matrix's.
    """
    if weight.dim() != 2:
        raise ValueError(f"weight_digits: weight must be [M, K], got {weight.shape}")
    if not bool(torch.isfinite(weight).all()):
        raise ValueError("weight_digits: weight must be finite")
    outputs, size = weight.shape
    words = words_for(size)
    exact = torch.nn.functional.pad(weight.double(), (0, words * WORD_BITS - size))
    largest = exact.abs().amax(1) if words else exact.new_zeros(outputs)
    # Just above, so that no weight rounds past the largest integer.
    step = torch.nextafter(
        (largest / LARGEST).float(), torch.full((), float("inf"), device=weight.device)
    )
    whole = (exact / step.double().unsqueeze(1)).round().to(torch.int64)
    digits = []
    for _ in range(DIGITS):
        lowest = ((whole + 128) & 255) - 128
        digits.append(lowest.to(torch.int8))
        whole = (whole - lowest) >> 8
    grouped = torch.stack(digits[::-1]).view(DIGITS, outputs, words, WORD_BITS // SHIFTS, SHIFTS)
    return grouped.transpose(-1, -2).contiguous(), step


def bits_linear(
    x: BitTensor,
    digits: Tensor,
    step: Tensor,
    *,
    scale: bool = True,
    bias: Tensor | None = None,
    addend: Tensor | None = None,
) -> Tensor:
    """Float32 ``[N, M]``: ``x_scale[i] * sum_k x[i, k] weight[o, k] + bias[o] + addend[i, o]``.

    Args:
        x: signs ``[N, K]``, with ``scale`` times the row scale they hold, if any.
        digits: of the weights, from :func:`weight_digits`.
        step: from there too.
        scale: whether the row scale acts.
        bias: float32 ``[M]``.
        addend: float32 ``[N, M]``, such as the other branch of a GraphSAGE or GraphConv layer.

    Raises:
        TypeError: x is no ``BitTensor``, or the dtype of a vector does not fit.
        ValueError: another dtype, a shape or device does not fit, or K is above
            :data:`MOST_FEATURES`.
    """
    name = "linear.bits_linear"
    _arguments.bit_matrix(name, "x", x)
    device, rows = x.words.device, step.size(0) if step.dim() == 1 else -1
    if x.size > MOST_FEATURES:
        raise ValueError(f"{name}: x must hold at most {MOST_FEATURES} features, got {x.size}")
    _arguments.vector(name, "step", step, max(rows, 0), device)
    expected = (DIGITS, rows, words_for(x.size), SHIFTS, WORD_BITS // SHIFTS)
    if not (digits.dtype == torch.int8 and tuple(digits.shape) == expected):
        raise ValueError(
            f"{name}: digits must be torch.int8 {list(expected)}, got {digits.dtype} "
            f"{list(digits.shape)}"
        )
    _arguments.same_device(name, "digits", digits.device, device)
    if addend is not None:
        shape = (x.words.size(0), rows)
        if not (addend.dtype == torch.float32 and addend.shape == shape):
            raise ValueError(
                f"{name}: addend must be torch.float32 {list(shape)}, got {addend.dtype} "
                f"{list(addend.shape)}"
            )
        _arguments.same_device(name, "addend", addend.device, device)
    return call(
        name, "bits_linear", x.words, digits, step, x.size, x.scale if scale else None, bias, addend
    )
