"""Reference of ternary and boolean rows: packing, products and attention.

A ternary row of ``K`` values in {-1, 0, +1} is two planes of ``ceil(K / 32)`` words, +1 and -1; a
boolean row is one plane. ``counts`` holds the set bits of each row.
"""

import math
from functools import partial

import torch
from torch import Tensor

from bitgnn.bits.tensor import words_for
from bitgnn.bits.ternary import QUANTISED
from bitgnn.ops.reference.bmm import dot_of
from bitgnn.ops.reference.pack import decide_product, from_words, signs, to_words
from bitgnn.ops.reference.table import COMPARED, Arguments, operator

LEAST_EXPONENT = -700.0
_LN2_HIGH = float.fromhex("0x1.62e42feep-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")

_PRODUCT = "x:N,2,W(size) counts:N w:M,W(size) size:int x_scale? w_scale?"
_ATTENTION = "scale:float bool_scale:float out_scale:float mask?@int32 causal=False dtype?:dtype"


def planes(words: Tensor, size: int) -> Tensor:
    """Float32 values in {0, 1} ``[..., size]`` of planes ``[..., ceil(size / 32)]``."""
    flat = words.reshape(math.prod(words.shape[:-1]), words.size(-1))
    return from_words(flat, size).to(torch.float32).view(*words.shape[:-1], size)


def ternary_values(words: Tensor, size: int) -> Tensor:
    """Float32 values in {-1, 0, +1} ``[..., size]`` of words ``[..., 2, ceil(size / 32)]``."""
    pos, neg = planes(words, size).unbind(-2)
    return pos - neg


def _check_scale(scale: Tensor | None, name: str) -> None:
    """Require None or one positive float32 number."""
    if scale is None:
        return
    if scale.dtype != torch.float32 or scale.dim() != 0:
        raise ValueError(f"{name} must be a float32 tensor of no dimensions")
    if scale.device.type == "cpu" and not 0 < float(scale) < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {float(scale)}")


def _halves(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Booleans x >= scale / 2 and x < -scale / 2, compared in float32."""
    if x.dtype not in QUANTISED:
        raise TypeError(f"x must be float32, float16 or bfloat16, got {x.dtype}")
    _check_scale(scale, "scale")
    wide, half = x.to(torch.float32), 0.5 * scale
    return wide >= half, wide < -half


def _packed(bits: Tensor) -> Tensor:
    """Words ``[..., ceil(K / 32)]`` of booleans ``[..., K]``."""
    size = bits.size(-1)
    flat = to_words(bits.reshape(math.prod(bits.shape[:-1]), size))
    return flat.view(*bits.shape[:-1], words_for(size))


def _empty_rows(x: Tensor, *planes: int) -> tuple[Tensor, Tensor]:
    """Words and counts of rows without values."""
    leading = x.shape[:-1]
    words = x.new_empty((*leading, *planes, words_for(x.size(-1))), dtype=torch.int32)
    return words, x.new_empty(leading, dtype=torch.int32)


def _empty(x: Tensor, dtype: torch.dtype | None, *shape: int) -> Tensor:
    return x.new_empty(shape, dtype=dtype or torch.float32)


@operator("x@floats scale", lambda a: _empty_rows(a.x, 2))
def pack_ternary(a: Arguments) -> tuple[Tensor, Tensor]:
    """Words ``[..., 2, ceil(K / 32)]`` and counts ``[...]`` of ternary x ``[..., K]``."""
    pos, neg = _halves(a.x, a.scale)
    counts = (pos | neg).sum(-1, dtype=torch.int32)
    return torch.stack([_packed(pos), _packed(neg)], -2), counts


@operator("x@floats scale", lambda a: _empty_rows(a.x))
def pack_bool(a: Arguments) -> tuple[Tensor, Tensor]:
    """Words ``[..., ceil(K / 32)]`` and counts ``[...]`` of boolean x ``[..., K]``."""
    pos, _ = _halves(a.x, a.scale)
    return _packed(pos), pos.sum(-1, dtype=torch.int32)


@operator("x@floats scale", lambda a: _empty_rows(a.x.transpose(-1, -2), 2))
def pack_ternary_columns(a: Arguments) -> tuple[Tensor, Tensor]:
    """Pack x ``[..., L, D]`` along L, as :func:`pack_ternary` packs x transposed."""
    return pack_ternary(a.x.transpose(-1, -2), a.scale)


def _values(
    dot: Tensor, scale: Tensor | None, bias: Tensor | None, dtype: torch.dtype | None
) -> Tensor:
    """``scale * dot + bias`` in float32, rounded to ``dtype``; int32 leaves no room for them."""
    if dtype == torch.int32:
        if scale is not None or bias is not None:
            raise ValueError("dtype int32 leaves no room for scales or a bias")
        return dot
    if dtype is not None and dtype not in QUANTISED:
        raise TypeError(f"dtype must be float32, float16, bfloat16 or int32, got {dtype}")
    value = dot.to(torch.float32)
    value = value if scale is None else scale * value
    value = value if bias is None else value + bias
    return value.to(dtype or torch.float32)


def _factor(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first * second


def _row_dots(a: Arguments) -> Tensor:
    _check_scale(a.x_scale, "x_scale")
    return dot_of(ternary_values(a.x, a.size), signs(a.w, a.size))


@operator(
    f"{_PRODUCT} bias?:M dtype?:dtype", lambda a: _empty(a.x, a.dtype, a.x.size(0), a.w.size(0))
)
def bmm_tbf(a: Arguments) -> Tensor:
    """``((x_scale * w_scale[o]) * dot) + bias[o]`` of x ``[N, 2, W]`` and words w ``[M, W]``."""
    return _values(_row_dots(a), _factor(a.x_scale, a.w_scale), a.bias, a.dtype)


@operator(f"{_PRODUCT} {COMPARED} -> bits:N,M")
def bmm_tbb(a: Arguments) -> Tensor:
    """Words ``[N, ceil(M / 32)]`` of ``(result of bmm_tbf >= threshold[o]) ^ flip[o]``.

    Without bias and threshold the scales are never applied: positive ones cannot change the sign.
    """
    dot = _row_dots(a)
    value = partial(_values, dot, _factor(a.x_scale, a.w_scale), a.bias, None)
    return to_words(decide_product(a, dot, value))


@operator(
    "x@floats w:M,W(size) size:int scale w_scale? bias?:M dtype?:dtype boolean=False",
    lambda a: _empty(a.x, a.dtype, a.x.size(0), a.w.size(0)),
)
def linear_ternary(a: Arguments) -> Tensor:
    """Float x ``[N, K]``, made ternary (or boolean) by ``scale``, times words w ``[M, W]``."""
    pos, neg = _halves(a.x, a.scale)
    values = pos.to(torch.float32)
    if not a.boolean:
        values = values - neg.to(torch.float32)
    factor = a.w_scale if a.dtype == torch.int32 else _factor(a.scale, a.w_scale)
    return _values(dot_of(values, signs(a.w, a.size)), factor, a.bias, a.dtype)


def _product(a: Arguments, x: Tensor, y: Tensor, y_scale: Tensor | None, name: str) -> Tensor:
    _check_scale(a.scale, "scale")
    _check_scale(y_scale, name)
    values = ternary_values(y, a.size)
    return _values(dot_of(x, values), _factor(a.scale, y_scale), None, a.dtype)


@operator(
    "q@int32 q_counts k@int32 k_counts size:int scale? dtype?:dtype k_scale?",
    lambda a: _empty(a.q, a.dtype, *a.q.shape[:-2], a.k.size(-3)),
)
def matmul_ttf(a: Arguments) -> Tensor:
    """``(scale * k_scale) * dot`` of ternary q ``[..., N, 2, W]`` and k ``[..., M, 2, W]``."""
    return _product(a, ternary_values(a.q, a.size), a.k, a.k_scale, "k_scale")


@operator(
    "a@int32 a_counts v@int32 v_counts size:int scale? dtype?:dtype v_scale?",
    lambda a: _empty(a.a, a.dtype, *a.a.shape[:-1], a.v.size(-3)),
)
def matmul_btf(a: Arguments) -> Tensor:
    """``(scale * v_scale) * dot`` of boolean a ``[..., N, W]`` and ternary v ``[..., M, 2, W]``."""
    return _product(a, planes(a.a, a.size), a.v, a.v_scale, "v_scale")


def exact_exp(x: float) -> float:
    """e^x for x <= 0 by the IEEE operations of csrc/attention/softmax_table.h, bit for bit."""
    if not x >= LEAST_EXPONENT:
        return 0.0
    k = math.floor(x * _LOG2_E + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    p = 1.0 / math.factorial(13)
    for n in range(12, -1, -1):
        p = p * r + 1.0 / math.factorial(n)
    return math.ldexp(p, k)


def softmax_table(scale: float, entries: int) -> list[float]:
    """``exp(-scale * t)`` for t in [0, entries), never rising."""
    table: list[float] = []
    for t in range(entries):
        power = exact_exp(-(scale * t))
        table.append(min(table[-1], power) if table else power)
    return table


def _attended(
    scores: Tensor, allowed: Tensor, table: Tensor, bool_scale: float, size: int
) -> Tensor:
    """Mask of the keys ``[N, L]`` with their bit set, by the exact sum of powers of each row."""
    lowest = torch.iinfo(torch.int64).min // 2
    highest = torch.where(allowed, scores, lowest).amax(1, keepdim=True)
    distance = torch.where(allowed, highest - scores, 2 * size + 1)  # which is dropped
    histogram = torch.zeros(scores.size(0), 2 * size + 2, dtype=torch.int64, device=scores.device)
    histogram.scatter_add_(1, distance, torch.ones_like(distance))
    total = torch.zeros(scores.size(0), dtype=torch.float64, device=scores.device)
    for t in range(2 * size + 1):
        total = total + table[t] * histogram[:, t].to(torch.float64)
    limit = (0.5 * bool_scale) * total
    return allowed & (table[distance.clamp(max=2 * size)] >= limit.unsqueeze(1))


def _allowed(a: Arguments, batch: int, queries: int) -> Tensor:
    """Mask of the keys that each query may attend to, ``[B, N, L]``."""
    allowed = torch.ones(batch, queries, a.length, dtype=torch.bool, device=a.q.device)
    if a.mask is not None:
        allowed &= from_words(a.mask, a.length).unsqueeze(1)
    if a.causal:
        pairs = torch.ones(queries, a.length, dtype=torch.bool, device=a.q.device)
        allowed &= pairs.tril(a.length - queries)
    return allowed


def _attended_values(a: Arguments, size: int) -> Tensor:
    """An empty result; the heads of a query are adjacent."""
    return _empty(a.q, a.dtype, a.q.size(0), a.q.size(2), a.q.size(1), size).transpose(1, 2)


@operator(
    f"q@int32 q_counts k@int32 k_counts v@int32 v_counts size:int length:int {_ATTENTION}",
    lambda a: _attended_values(a, a.size),
)
def attention_ternary(a: Arguments) -> Tensor:
    """Attention of ternary q ``[B, H, N, 2, W]``, k ``[B, Hk, L, 2, W]``, v ``[B, Hk, D, 2, Wl]``.

    With d the dot products of a query and m the highest of those it may attend to, the bit of key
    j is ``T[m - d_j] >= 0.5 * bool_scale * sum(T[m - d])``, ``T[t] = exp(-scale * t)``, sums in
    float64 over t ascending. The result ``out_scale * sum_j bit_j * v_j`` is ``[B, H, N, D]``;
    queries that may attend to nothing give 0.
    """
    for name in ("scale", "bool_scale", "out_scale"):
        number = getattr(a, name)
        if not 0 < number < math.inf:
            raise ValueError(f"{name} must be positive and finite, got {number}")
    (batch, heads, queries), size, device = a.q.shape[:3], a.size, a.q.device
    out = torch.zeros(batch, queries, heads, size, dtype=torch.float32, device=device)
    if queries and a.length:
        powers = softmax_table(a.scale, 2 * size + 1)
        table = torch.tensor(powers, dtype=torch.float64, device=device)
        allowed = _allowed(a, batch, queries)
        group = heads // max(a.k.size(1), 1)
        for b in range(batch):
            for h in range(heads):
                keys = ternary_values(a.k[b, h // group], size)
                scores = dot_of(ternary_values(a.q[b, h], size), keys)
                bits = _attended(scores.long(), allowed[b], table, a.bool_scale, size)
                values = ternary_values(a.v[b, h // group], a.length)
                out[b, :, h] = a.out_scale * dot_of(bits, values).to(torch.float32)
    return out.to(a.dtype or torch.float32).transpose(1, 2)


@operator(
    f"q@floats k@floats v@floats q_scale k_scale v_scale {_ATTENTION}",
    lambda a: _attended_values(a, a.q.size(3)),
)
def attention_ternary_floats(a: Arguments) -> Tensor:
    """:func:`attention_ternary` of floats q ``[B, H, N, D]``, k and v ``[B, Hk, L, D]``."""
    packed = (
        *pack_ternary(a.q, a.q_scale),
        *pack_ternary(a.k, a.k_scale),
        *pack_ternary_columns(a.v, a.v_scale),
    )
    options = a.scale, a.bool_scale, a.out_scale, a.mask, a.causal, a.dtype
    return attention_ternary(*packed, a.q.size(3), a.k.size(2), *options)
