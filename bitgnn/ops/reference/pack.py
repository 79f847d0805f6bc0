"""Reference of packing: bits and canonical row scales, back to floats, and ADD and CONCAT."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.ops.reference.table import Arguments, operator

STANDARDIZE_EPSILON = 1e-4
"""Added to the deviation by which rows are divided, as in Bi-GCN's code."""


def to_words(bits: Tensor) -> Tensor:
    """Pack booleans ``[N, K]`` into int32 words ``[N, ceil(K / 32)]``, padding bits 0."""
    num_rows, size = bits.shape
    num_words = words_for(size)
    padded = functional.pad(bits.to(torch.int32), (0, num_words * WORD_BITS - size))
    # Bit 31 weighs -2**31; distinct powers of two add up without overflow in int32.
    places = torch.arange(WORD_BITS, dtype=torch.int32, device=bits.device)
    weights = torch.ones((), dtype=torch.int32, device=bits.device) << places
    return (padded.view(num_rows, num_words, WORD_BITS) * weights).sum(-1, dtype=torch.int32)


def from_words(words: Tensor, size: int) -> Tensor:
    """Unpack int32 words ``[N, W]`` into booleans ``[N, size]``."""
    positions = torch.arange(WORD_BITS, dtype=torch.int32, device=words.device)
    bits = (words.unsqueeze(-1) >> positions) & 1
    return bits.reshape(words.size(0), words.size(1) * WORD_BITS)[:, :size].bool()


def signs(words: Tensor, size: int) -> Tensor:
    """Float32 values ``[N, size]`` in {-1, +1} of packed words."""
    return from_words(words, size).to(torch.float32) * 2 - 1


def _check_packable(x: Tensor) -> None:
    if not (x.is_floating_point() or x.dtype == torch.uint8):
        raise TypeError(f"x must be floating point or uint8, got {x.dtype}")


def binarise(x: Tensor, threshold: Tensor | None = None) -> Tensor:
    """Booleans ``x >= threshold`` (None: 0), compared in float32, in float64 for float64 x."""
    _check_packable(x)
    wide = x if x.dtype == torch.float64 else x.to(torch.float32)
    return wide >= (0 if threshold is None else threshold.to(wide.dtype))


def decide(value: Tensor, threshold: Tensor | None, flip: Tensor | None = None) -> Tensor:
    """Booleans ``(value >= threshold) ^ flip``, the threshold 0 without one."""
    bits = value >= (0 if threshold is None else threshold)
    return bits if flip is None else bits ^ flip


def decide_product(a: Arguments, dot: Tensor, value: Callable[[], Tensor]) -> Tensor:
    """Booleans of an integer product by the bias, threshold and flip among the arguments.

    ``value`` makes floats of it. Without bias and threshold the scales are never applied: a
    positive one cannot change the sign.
    """
    plain = a.bias is None and a.threshold is None
    return decide(dot if plain else value(), a.threshold, a.flip)


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
    padded = functional.pad(value.abs(), (0, num_words * WORD_BITS - size))
    lanes = torch.zeros(num_rows, WORD_BITS, dtype=torch.float32, device=x.device)
    for chunk in padded.view(num_rows, num_words, WORD_BITS).unbind(1):
        lanes = lanes + chunk
    width = WORD_BITS
    while width > 1:
        width //= 2
        lanes = lanes[:, :width] + lanes[:, width:]
    return lanes[:, 0] / torch.full((), size, dtype=torch.float32, device=x.device)


@operator("x:N,K@packable threshold?:K -> bits:N,K")
def pack(a: Arguments) -> Tensor:
    """Words ``[N, ceil(K / 32)]`` of ``x >= threshold`` for float ``x`` ``[N, K]``."""
    return to_words(binarise(a.x, a.threshold))


@operator("x:N,K@packable threshold?:K gain?:K -> bits:N,K floats:N")
def pack_scaled(a: Arguments) -> tuple[Tensor, Tensor]:
    """Words as :func:`pack` and the canonical row scale ``[N]`` in one go."""
    return pack(a.x, a.threshold), row_scale(a.x, a.threshold, a.gain)


@operator("rowptr:P indices:E@pointers values:E@packable size:int threshold?:size -> bits:P-1,size")
def pack_csr(a: Arguments) -> Tensor:
    """Words as :func:`pack` of the matrix ``[P - 1, size]`` given by its entries.

    Row pointer and columns are int32 or int64. Entries that share a place are added up in float32,
    those of float64 in float64; a place without one is 0. On a GPU, where nobody waits for a check
    of values, entries outside of the matrix are left out.

    Raises:
        ValueError: ``rowptr`` does not ascend from 0 to the number of entries, or a column lies
            outside.
    """
    return to_words(binarise(dense_entries(a.rowptr, a.indices, a.values, a.size)[0], a.threshold))


def dense_entries(
    rowptr: Tensor, indices: Tensor, values: Tensor, num_cols: int
) -> tuple[Tensor, Tensor]:
    """Sums of entries of each place, float32 or float64, and booleans where there are any.

    Raises:
        TypeError: ``rowptr`` or ``indices`` is not int32 or int64, or values cannot be packed.
        ValueError: the entries do not fit, see :func:`check_csr`.
    """
    _check_packable(values)
    for name, held in (("rowptr", rowptr), ("indices", indices)):
        if held.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"{name} must be int32 or int64, got {held.dtype}")
    check_csr(rowptr, indices, num_cols)
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    rows, degree = rowptr.numel() - 1, rowptr.diff().long()
    places = torch.arange(rows, device=degree.device).repeat_interleave(degree), indices.long()
    sums = torch.zeros(rows, num_cols, dtype=wide, device=degree.device)
    has_entry = torch.zeros_like(sums, dtype=torch.bool)
    has_entry[places] = True
    return sums.index_put_(places, values.to(wide), accumulate=True), has_entry


def check_csr(rowptr: Tensor, indices: Tensor, num_cols: int) -> None:
    """Require edges that stay inside ``num_cols`` columns.

    Raises:
        ValueError: ``rowptr`` does not ascend from 0 to the number of edges, or an index lies
            outside.
    """
    if int(rowptr[0]) != 0 or bool((rowptr.diff() < 0).any()):
        raise ValueError("rowptr must begin with 0 and never descend")
    if int(rowptr[-1]) != len(indices):
        raise ValueError(f"the last entry of rowptr must be {len(indices)}, got {int(rowptr[-1])}")
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= num_cols):
        raise ValueError(f"indices must lie in [0, {num_cols})")


@operator(
    "x:N,K@packable relu=False scaled=False",
    lambda a: (
        a.x.new_empty((a.x.size(0), words_for(a.x.size(1))), dtype=torch.int32),
        a.x.new_empty((a.x.size(0) if a.scaled else 0,), dtype=torch.float32),
    ),
)
def pack_standardized(a: Arguments) -> tuple[Tensor, Tensor]:
    """Words and row scale of ``s(u) = (u - mean(u)) / (std(u) + 1e-4)`` of each row.

    ``u`` is ``x`` ``[N, K]``, of any floating-point dtype or uint8, or ``max(x, 0)`` with ``relu``.
    The mean of a row is a float64 sum rounded to float32 at the end: in practice the same whatever
    the order. The bit is ``u >= mean``; a row with NaN or infinity, where ``s`` is NaN throughout,
    has no bit set. With ``scaled`` the scale is the mean of ``|s(u)|``, float32 ``[N]``, by the
    unbiased deviation (a row of one feature, which has none, becomes 0), else ``[0]``.
    """
    _check_packable(a.x)
    num_rows, size = a.x.shape
    u = a.x.to(torch.float64)
    if a.relu:
        u = torch.where(u < 0, torch.zeros_like(u), u)
    total = u.sum(1, keepdim=True)
    mean = (total / size).to(torch.float32).to(torch.float64)
    words = to_words((u >= mean) & mean.isfinite())
    if not a.scaled:
        return words, torch.empty(0, dtype=torch.float32, device=u.device)
    if size == 0:
        return words, torch.zeros(num_rows, dtype=torch.float32, device=u.device)
    centred = u - mean
    distance = centred.abs().sum(1, keepdim=True) / size
    rest = total - size * mean
    variance = (centred.square().sum(1, keepdim=True) - rest * rest / size) / max(size - 1, 1)
    deviation = variance.clamp(min=0).sqrt() + STANDARDIZE_EPSILON
    scale = torch.where(mean.isfinite(), distance / deviation, float("nan"))
    return words, scale.squeeze(1).to(torch.float32)


@operator("words:N,W(size) size:int -> bits:size,N")
def transpose_bits(a: Arguments) -> Tensor:
    """Words ``[size, ceil(N / 32)]`` of the transposed matrix of bits ``[N, size]``."""
    return to_words(from_words(a.words, a.size).t())


@operator("words:N,W(size) size:int scale?:N -> floats:N,size")
def unpack(a: Arguments) -> Tensor:
    """Float32 ``[N, size]``: +scale where the bit is 1, -scale where it is 0 (scale 1 if None)."""
    values = signs(a.words, a.size)
    return values if a.scale is None else values * a.scale.unsqueeze(-1)


@operator("a:N,W(size) b:N,W(size) size:int a_scale?:N b_scale?:N -> floats:N,size")
def add_bbf(a: Arguments) -> Tensor:
    """Words a, b ``[N, W]`` to float32 ``a_scale * a + b_scale * b`` ``[N, size]``."""
    return unpack(a.a, a.size, a.a_scale) + unpack(a.b, a.size, a.b_scale)


@operator("a:N,W(size) b:N,W(size) size:int a_scale?:N b_scale?:N threshold?:size -> bits:N,size")
def add_bbb(a: Arguments) -> Tensor:
    """Words of ``add_bbf(...) >= threshold``."""
    return to_words(decide(add_bbf(a.a, a.b, a.size, a.a_scale, a.b_scale), a.threshold))


@operator("a:N,K b:N,K threshold?:K -> bits:N,K")
def add_ffb(a: Arguments) -> Tensor:
    """Words of ``a + b >= threshold`` for float a, b ``[N, K]``, added in float32."""
    return to_words(binarise(a.a.to(torch.float32) + a.b.to(torch.float32), a.threshold))


@operator("a:N,W(a_size) b:N,W(b_size) a_size:int b_size:int -> bits:N,a_size+b_size")
def concat_bbb(a: Arguments) -> Tensor:
    """Words of the features of a followed by those of b."""
    return to_words(torch.cat([from_words(a.a, a.a_size), from_words(a.b, a.b_size)], dim=1))


@operator(
    "a:N,W(a_size) b:N,W(b_size) a_size:int b_size:int a_scale?:N b_scale?:N "
    "-> floats:N,a_size+b_size"
)
def concat_bbf(a: Arguments) -> Tensor:
    """Float32 ``[N, a_size + b_size]``: the (scaled) values of a followed by those of b."""
    values = unpack(a.a, a.a_size, a.a_scale), unpack(a.b, a.b_size, a.b_scale)
    return torch.cat(values, dim=1)


@operator("a:N,K b:N,L threshold?:_ -> bits:N,K+L")
def concat_ffb(a: Arguments) -> Tensor:
    """Words of ``[a, b] >= threshold`` for float a ``[N, Ka]``, b ``[N, Kb]``, as float32."""
    joined = torch.cat([a.a.to(torch.float32), a.b.to(torch.float32)], dim=1)
    return to_words(binarise(joined, a.threshold))
