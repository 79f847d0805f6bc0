"""Reference of ternary and boolean packing and of products of ternary rows with +-1 weights.

A ternary row of ``K`` values in {-1, 0, +1} is two planes of ``ceil(K / 32)`` words, +1 and -1; a
boolean row is one plane. ``counts`` holds the set bits of each row.
"""

import math
from functools import partial

import torch
from torch import Tensor

from bitgnn.bits.tensor import words_for
from bitgnn.ops.reference.pack import decide_product, from_words, signs, to_words
from bitgnn.ops.reference.table import PRODUCT, operator

QUANTISED = (torch.float32, torch.float16, torch.bfloat16)
"""What can be made ternary; what products are returned as, beside int32."""


_TERNARY_X = "x:N,2,W(size) counts:N"


def planes(words: Tensor, size: int) -> Tensor:
    """Float32 values in {0, 1} ``[..., size]`` of planes ``[..., ceil(size / 32)]``."""
    flat = words.reshape(math.prod(words.shape[:-1]), words.size(-1))
    return from_words(flat, size).to(torch.float32).view(*words.shape[:-1], size)


def ternary_values(words: Tensor, size: int) -> Tensor:
    """Float32 values in {-1, 0, +1} ``[..., size]`` of words ``[..., 2, ceil(size / 32)]``."""
    pos, neg = planes(words, size).unbind(-2)
    return pos - neg


def check_scale(scale: Tensor, name: str) -> None:
    """One positive float32 number.

    Raises:
        ValueError: it is not.
    """
    if scale.dtype != torch.float32 or scale.dim() != 0:
        raise ValueError(f"{name} must be a float32 tensor of no dimensions")
    if scale.device.type == "cpu" and not 0 < float(scale) < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {float(scale)}")


def _halves(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Booleans x >= scale / 2 and x < -scale / 2, compared in float32."""
    if x.dtype not in QUANTISED:
        raise TypeError(f"x must be float32, float16 or bfloat16, got {x.dtype}")
    check_scale(scale, "scale")
    wide, half = x.to(torch.float32), 0.5 * scale
    return wide >= half, wide < -half


def _packed(bits: Tensor) -> Tensor:
    """Words ``[..., ceil(K / 32)]`` of booleans ``[..., K]``."""
    size = bits.size(-1)
    flat = to_words(bits.reshape(math.prod(bits.shape[:-1]), size))
    return flat.view(*bits.shape[:-1], words_for(size))


def _ternary_words(x: Tensor) -> tuple[Tensor, Tensor]:
    """Words and counts of rows without values."""
    leading = x.shape[:-1]
    words = x.new_empty((*leading, 2, words_for(x.size(-1))), dtype=torch.int32)
    return words, x.new_empty(leading, dtype=torch.int32)


def _boolean_words(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same with one plane."""
    words, counts = _ternary_words(x)
    return torch.empty_like(words[..., 0, :]), counts


def _product(x: Tensor, w: Tensor, dtype: torch.dtype | None) -> Tensor:
    return x.new_empty((x.size(0), w.size(0)), dtype=dtype or torch.float32)


@operator("", _ternary_words)
def pack_ternary(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Words ``[..., 2, ceil(K / 32)]`` and counts ``[...]`` of ternary x ``[..., K]``."""
    pos, neg = _halves(x, scale)
    counts = (pos | neg).sum(-1, dtype=torch.int32)
    return torch.stack([_packed(pos), _packed(neg)], -2), counts


@operator("", _boolean_words)
def pack_bool(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Words ``[..., ceil(K / 32)]`` and counts ``[...]`` of boolean x ``[..., K]``."""
    pos, _ = _halves(x, scale)
    return _packed(pos), pos.sum(-1, dtype=torch.int32)


@operator("", lambda x: _ternary_words(x.transpose(-1, -2)))
def pack_ternary_columns(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The same as :func:`pack_ternary` of x transposed: x ``[..., L, D]``, bits along L."""
    return pack_ternary(x.transpose(-1, -2), scale)


def dot_of(x: Tensor, y: Tensor) -> Tensor:
    """Integer product of rows of small integers as int32; float sums of integers are exact."""
    dtype = torch.float32 if x.size(-1) <= 2**24 else torch.float64
    return (x.to(dtype) @ y.to(dtype).transpose(-1, -2)).to(torch.int32)


def to_value(
    dot: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    dtype: torch.dtype | None,
) -> Tensor:
    """``scale * dot + bias`` in float32, rounded to ``dtype``; int32 leaves no room for them."""
    if dtype == torch.int32:
        if scale is not None or bias is not None:
            raise ValueError("dtype int32 leaves no room for scales or a bias")
        return dot
    if dtype is not None and dtype not in QUANTISED:
        raise TypeError(f"dtype must be float32, float16, bfloat16 or int32, got {dtype}")
    value = dot.to(torch.float32)
    if scale is not None:
        value = scale * value
    if bias is not None:
        value = value + bias
    return value.to(dtype or torch.float32)


def _factor(x_scale: Tensor | None, w_scale: Tensor | None) -> Tensor | None:
    if x_scale is None or w_scale is None:
        return w_scale if x_scale is None else x_scale
    return x_scale * w_scale


@operator(f"{_TERNARY_X} w:M,W(size) bias:M", _product)
def bmm_tbf(
    x: Tensor,
    counts: Tensor,
    w: Tensor,
    size: int,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """``((x_scale * w_scale[o]) * dot) + bias[o]`` of x ``[N, 2, W]`` and words w ``[M, W]``."""
    if x_scale is not None:
        check_scale(x_scale, "x_scale")
    dot = dot_of(ternary_values(x, size), signs(w, size))
    return to_value(dot, _factor(x_scale, w_scale), bias, dtype)


@operator(f"{_TERNARY_X} w:M,W(size) {PRODUCT} -> bits:N,M")
def bmm_tbb(
    x: Tensor,
    counts: Tensor,
    w: Tensor,
    size: int,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
) -> Tensor:
    """Words ``[N, ceil(M / 32)]`` of ``(result of bmm_tbf >= threshold[o]) ^ flip[o]``.

    Without bias and threshold the scales are never applied: positive ones cannot change the sign.
    """
    if x_scale is not None:
        check_scale(x_scale, "x_scale")
    dot = dot_of(ternary_values(x, size), signs(w, size))
    value = partial(to_value, dot, _factor(x_scale, w_scale), bias, None)
    return to_words(decide_product(dot, value, bias, threshold, flip))


@operator("w:M,W(size) bias:M", _product)
def linear_ternary(
    x: Tensor,
    w: Tensor,
    size: int,
    scale: Tensor,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    dtype: torch.dtype | None = None,
    boolean: bool = False,
) -> Tensor:
    """Float x ``[N, K]``, made ternary (or boolean) by ``scale``, times words w ``[M, W]``."""
    pos, neg = _halves(x, scale)
    values = pos.to(torch.float32)
    if not boolean:
        values = values - neg.to(torch.float32)
    factor = w_scale if dtype == torch.int32 else _factor(scale, w_scale)
    return to_value(dot_of(values, signs(w, size)), factor, bias, dtype)
