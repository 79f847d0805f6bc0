"""Reference of the packing operators: bits, canonical row scales and back to floats."""

from collections.abc import Callable

import torch
from torch import Tensor

from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.ops.reference.table import operator

STANDARDIZE_EPSILON = 1e-4
"""Added to the deviation by which rows are divided, as in Bi-GCN's code."""


def to_words(bits: Tensor) -> Tensor:
    """Pack booleans ``[N, K]`` into int32 words ``[N, ceil(K / 32)]``, padding bits 0."""
    num_rows, size = bits.shape
    num_words = words_for(size)
    padded = torch.nn.functional.pad(bits.to(torch.int32), (0, num_words * WORD_BITS - size))
    # Bit 31 weighs -2**31; distinct powers of two add up without overflow in int32.
    weights = torch.ones((), dtype=torch.int32, device=bits.device) << torch.arange(
        WORD_BITS, dtype=torch.int32, device=bits.device
    )
    grouped = padded.view(num_rows, num_words, WORD_BITS)
    return (grouped * weights).sum(-1, dtype=torch.int32)


def from_words(words: Tensor, size: int) -> Tensor:
    """Unpack int32 words ``[N, W]`` into booleans ``[N, size]``."""
    positions = torch.arange(WORD_BITS, dtype=torch.int32, device=words.device)
    bits = (words.unsqueeze(-1) >> positions) & 1
    return bits.reshape(words.size(0), words.size(1) * WORD_BITS)[:, :size].bool()


def signs(words: Tensor, size: int) -> Tensor:
    """Float32 values ``[N, size]`` in {-1, +1} of packed words."""
    return from_words(words, size).to(torch.float32) * 2 - 1


def binarise(x: Tensor, threshold: Tensor | None = None) -> Tensor:
    """Booleans ``x >= threshold`` (None: 0), compared in float32, in float64 for float64 x."""
    if not (x.is_floating_point() or x.dtype == torch.uint8):
        raise TypeError(f"x must be floating point or uint8, got {x.dtype}")
    wide = x if x.dtype == torch.float64 else x.to(torch.float32)
    return wide >= (0 if threshold is None else threshold.to(wide.dtype))


def decide(value: Tensor, threshold: Tensor | None, flip: Tensor | None = None) -> Tensor:
    """Booleans ``(value >= threshold) ^ flip``, the threshold 0 without one."""
    bits = value >= (0 if threshold is None else threshold)
    return bits if flip is None else bits ^ flip


def decide_product(
    dot: Tensor,
    value: Callable[[], Tensor],
    bias: Tensor | None,
    threshold: Tensor | None,
    flip: Tensor | None,
) -> Tensor:
    """Booleans of an integer product behind its scales and bias.

    Without bias and threshold the scales are never applied: a positive one cannot change the sign.

    Args:
        dot: the integers.
        value: makes floats of them.
        bias: what ``value`` adds, or None.
        threshold: of the floats.
        flip: turns bits round.
    """
    plain = bias is None and threshold is None
    return decide(dot if plain else value(), threshold, flip)


def row_scale(x: Tensor, threshold: Tensor | None = None, gain: Tensor | None = None) -> Tensor:
    """Canonical mean of ``|(x - threshold) * gain|`` of each row, float32 ``[N]``.

    Lane ``l`` of 32 adds up features ``l, l + 32, l + 64, ...`` in that order, a tree folds the
    lanes and one division follows, so that every backend gives the same bits.
    """
    num_rows, size = x.shape
    if size == 0:
        return torch.zeros(num_rows, dtype=torch.float32, device=x.device)
    value = x.to(torch.float32)
    if threshold is not None:
        value = value - threshold
    if gain is not None:
        value = value * gain
    num_words = words_for(size)
    padded = torch.nn.functional.pad(value.abs(), (0, num_words * WORD_BITS - size))
    lanes = torch.zeros(num_rows, WORD_BITS, dtype=torch.float32, device=x.device)
    for chunk in padded.view(num_rows, num_words, WORD_BITS).unbind(1):
        lanes = lanes + chunk
    width = WORD_BITS
    while width > 1:
        width //= 2
        lanes = lanes[:, :width] + lanes[:, width:]
    return lanes[:, 0] / torch.full((), size, dtype=torch.float32, device=x.device)


@operator("x:N,K threshold:K -> bits:N,K")
def pack(x: Tensor, threshold: Tensor | None = None) -> Tensor:
    """Words ``[N, ceil(K / 32)]`` of ``x >= threshold`` for float ``x`` ``[N, K]``."""
    return to_words(binarise(x, threshold))


LEVEL_SLOT = 16
"""Adjacent bits of each feature's thermometer where no columns are given."""


@operator("x:N,_ columns:B thresholds:B -> bits:N,B")
def pack_levels(
    x: Tensor, columns: Tensor | None, thresholds: Tensor, trusted: bool = False
) -> Tensor:
    """Words ``[N, ceil(B / 32)]`` of ``x[:, columns] >= thresholds``, the bits of thermometers.

    Args:
        x: ``[N, K]``, any floating-point dtype or uint8; float64 is compared in float64.
        columns: the feature of each bit, int64 ``[B]``; those of one feature side by side are fast.
            None is 16 bits a feature, the fastest: bit b is of feature b / 16.
        thresholds: float32 ``[B]``; no value reaches NaN.
        trusted: the caller vouches for the columns, which are not looked at.
    """
    if columns is None:
        if thresholds.numel() > LEVEL_SLOT * x.size(1):
            raise RuntimeError(
                f"pack_levels: thresholds must be at most {LEVEL_SLOT} a feature without columns, "
                f"got {thresholds.numel()} for {x.size(1)} features"
            )
        columns = torch.arange(thresholds.numel(), device=x.device) // LEVEL_SLOT
    if not trusted and not bool(((columns >= 0) & (columns < x.size(1))).all()):
        raise RuntimeError(f"pack_levels: columns must lie in [0, {x.size(1)}), got {columns}")
    return pack(x.index_select(1, columns), thresholds)


@operator("x:N,K threshold:K gain:K -> bits:N,K floats:N")
def pack_scaled(
    x: Tensor, threshold: Tensor | None = None, gain: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Words as :func:`pack` and the canonical row scale ``[N]`` in one go."""
    return pack(x, threshold), row_scale(x, threshold, gain)


@operator(
    "x:N,K",
    lambda x, scaled: (
        x.new_empty((x.size(0), words_for(x.size(1))), dtype=torch.int32),
        x.new_empty((x.size(0) if scaled else 0,), dtype=torch.float32),
    ),
)
def pack_standardized(x: Tensor, relu: bool = False, scaled: bool = False) -> tuple[Tensor, Tensor]:
    """Words and row scale of ``s(u) = (u - mean(u)) / (std(u) + 1e-4)`` of each row.

    ``u`` is ``x``, or ``max(x, 0)`` with ``relu``. The mean of a row is a float64 sum rounded to
    float32 at the end: in practice the same whatever the order. The bit is ``u >= mean``; a row
    with NaN or infinity, where ``s`` is NaN throughout, has no bit set.

    Args:
        x: ``[N, K]``, any floating-point dtype or uint8.
        relu: take ``max(x, 0)`` first.
        scaled: return the row scale.

    Returns:
        Words ``[N, ceil(K / 32)]``; with ``scaled`` the mean of ``|s(u)|``, float32 ``[N]``, by
        the unbiased deviation (a row of one feature, which has none, becomes 0), else ``[0]``.
    """
    if not (x.is_floating_point() or x.dtype == torch.uint8):
        raise TypeError(f"x must be floating point or uint8, got {x.dtype}")
    num_rows, size = x.shape
    u = x.to(torch.float64)
    if relu:
        u = torch.where(u < 0, torch.zeros_like(u), u)
    total = u.sum(1, keepdim=True)
    mean = (total / size).to(torch.float32).to(torch.float64)
    words = to_words((u >= mean) & mean.isfinite())
    if not scaled:
        return words, torch.empty(0, dtype=torch.float32, device=x.device)
    if size == 0:
        return words, torch.zeros(num_rows, dtype=torch.float32, device=x.device)
    centred = u - mean
    distance = centred.abs().sum(1, keepdim=True) / size
    rest = total - size * mean
    variance = (centred.square().sum(1, keepdim=True) - rest * rest / size) / max(size - 1, 1)
    deviation = variance.clamp(min=0).sqrt() + STANDARDIZE_EPSILON
    scale = torch.where(mean.isfinite(), distance / deviation, float("nan"))
    return words, scale.squeeze(1).to(torch.float32)


@operator("words:N,W(size) -> bits:size,N")
def transpose_bits(words: Tensor, size: int) -> Tensor:
    """Words ``[size, ceil(N / 32)]`` of the transposed matrix of bits ``[N, size]``."""
    return to_words(from_words(words, size).t())


@operator("words:N,W(size) scale:N -> floats:N,size")
def unpack(words: Tensor, size: int, scale: Tensor | None = None) -> Tensor:
    """Float32 ``[N, size]``: +scale where the bit is 1, -scale where it is 0 (scale 1 if None)."""
    values = signs(words, size)
    return values if scale is None else values * scale.unsqueeze(-1)
