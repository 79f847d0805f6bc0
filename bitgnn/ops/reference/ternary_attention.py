"""Reference of batched products of ternary and boolean rows, and of attention made of them."""

import math

import torch
from torch import Tensor

from bitgnn.ops.reference.pack import from_words
from bitgnn.ops.reference.table import operator
from bitgnn.ops.reference.ternary import (
    check_scale,
    dot_of,
    pack_ternary,
    pack_ternary_columns,
    planes,
    ternary_values,
    to_value,
)

LEAST_EXPONENT = -700.0
_LN2_HIGH = float.fromhex("0x1.62e42feep-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")


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


@operator(
    "", lambda q, k, dtype: q.new_empty((*q.shape[:-2], k.size(-3)), dtype=dtype or torch.float32)
)
def matmul_ttf(
    q: Tensor,
    q_counts: Tensor,
    k: Tensor,
    k_counts: Tensor,
    size: int,
    scale: Tensor | None = None,
    dtype: torch.dtype | None = None,
    k_scale: Tensor | None = None,
) -> Tensor:
    """``(scale * k_scale) * dot`` of ternary q ``[..., N, 2, W]`` and k ``[..., M, 2, W]``."""
    factor = _product_scale(scale, k_scale, "k_scale")
    return to_value(dot_of(ternary_values(q, size), ternary_values(k, size)), factor, None, dtype)


@operator(
    "", lambda a, v, dtype: a.new_empty((*a.shape[:-1], v.size(-3)), dtype=dtype or torch.float32)
)
def matmul_btf(
    a: Tensor,
    a_counts: Tensor,
    v: Tensor,
    v_counts: Tensor,
    size: int,
    scale: Tensor | None = None,
    dtype: torch.dtype | None = None,
    v_scale: Tensor | None = None,
) -> Tensor:
    """``(scale * v_scale) * dot`` of boolean a ``[..., N, W]`` and ternary v ``[..., M, 2, W]``."""
    factor = _product_scale(scale, v_scale, "v_scale")
    return to_value(dot_of(planes(a, size), ternary_values(v, size)), factor, None, dtype)


def _product_scale(first: Tensor | None, second: Tensor | None, name: str) -> Tensor | None:
    for scale, which in ((first, "scale"), (second, name)):
        if scale is not None:
            check_scale(scale, which)
    if first is None or second is None:
        return second if first is None else first
    return first * second


def _attended(
    scores: Tensor, allowed: Tensor, table: Tensor, bool_scale: float, size: int
) -> Tensor:
    """Which keys ``[N, L]`` have their bit set, by the exact sum of the powers of each row."""
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


def _attended_values(q: Tensor, size: int, dtype: torch.dtype | None) -> Tensor:
    """A result without values; the heads of a query lie behind each other."""
    shape = (q.size(0), q.size(2), q.size(1), size)
    return q.new_empty(shape, dtype=dtype or torch.float32).transpose(1, 2)


@operator("", _attended_values)
def attention_ternary(
    q: Tensor,
    q_counts: Tensor,
    k: Tensor,
    k_counts: Tensor,
    v: Tensor,
    v_counts: Tensor,
    size: int,
    length: int,
    scale: float,
    bool_scale: float,
    out_scale: float,
    mask: Tensor | None = None,
    causal: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Attention of ternary q ``[B, H, N, 2, W]``, k ``[B, Hk, L, 2, W]``, v ``[B, Hk, D, 2, Wl]``.

    With d the dot products of a query and m the highest of those it may attend to, the bit of key
    j is ``T[m - d_j] >= 0.5 * bool_scale * sum(T[m - d])``, ``T[t] = exp(-scale * t)``, sums in
    float64 over t ascending. The result ``out_scale * sum_j bit_j * v_j`` is ``[B, H, N, D]``;
    queries that may attend to nothing give 0.
    """
    for name, number in (("scale", scale), ("bool_scale", bool_scale), ("out_scale", out_scale)):
        if not 0 < number < math.inf:
            raise ValueError(f"{name} must be positive and finite, got {number}")
    batch, heads, queries = q.shape[:3]
    out = torch.zeros(batch, queries, heads, size, dtype=torch.float32, device=q.device)
    if queries and length:
        table = torch.tensor(
            softmax_table(scale, 2 * size + 1), dtype=torch.float64, device=q.device
        )
        allowed = torch.ones(batch, queries, length, dtype=torch.bool, device=q.device)
        if mask is not None:
            allowed &= from_words(mask, length).unsqueeze(1)
        if causal:
            pairs = torch.ones(queries, length, dtype=torch.bool, device=q.device)
            allowed &= pairs.tril(length - queries)
        group = heads // max(k.size(1), 1)
        for b in range(batch):
            for h in range(heads):
                scores = dot_of(
                    ternary_values(q[b, h], size), ternary_values(k[b, h // group], size)
                )
                bits = _attended(scores.long(), allowed[b], table, bool_scale, size)
                values = ternary_values(v[b, h // group], length)
                out[b, :, h] = out_scale * dot_of(bits, values).to(torch.float32)
    return out.to(dtype or torch.float32).transpose(1, 2)


@operator("", lambda q, dtype: _attended_values(q, q.size(3), dtype))
def attention_ternary_floats(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_scale: Tensor,
    k_scale: Tensor,
    v_scale: Tensor,
    scale: float,
    bool_scale: float,
    out_scale: float,
    mask: Tensor | None = None,
    causal: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """:func:`attention_ternary` of floats q ``[B, H, N, D]``, k and v ``[B, Hk, L, D]``."""
    return attention_ternary(
        *pack_ternary(q, q_scale),
        *pack_ternary(k, k_scale),
        *pack_ternary_columns(v, v_scale),
        q.size(3),
        k.size(2),
        scale,
        bool_scale,
        out_scale,
        mask,
        causal,
        dtype,
    )
