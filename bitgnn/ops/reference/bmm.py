"""Reference of the binary matrix products BMM.xyz, of float weights in digits, and of chains.

Letters are activation, weight, output: F full precision, B bits. ``dot`` is the product of the
+-1 values; every float step is rounded to float32 on its own, in the order written here.
"""

from functools import partial

import torch
from torch import Tensor

from bitgnn.bits.tensor import words_for
from bitgnn.ops.reference.pack import (
    binarise,
    decide_product,
    from_words,
    row_scale,
    signs,
    to_words,
)
from bitgnn.ops.reference.table import COMPARED, SCALES, Arguments, operator

EXACT_FLOAT32 = 2**24
"""Integers up to here are exact in float32."""
DIGITS = 3
"""A weight is ``(65536 d0 + 256 d1 + d2) * step``."""
SHIFTS = 8
"""Byte ``[t, j]`` of a word belongs to its feature ``t + 8 j``."""
LAYER_NUMBERS = 4
"""Numbers that describe a layer: size, outputs, and where weights and table begin in the image."""
HIDDEN_TABLE = 2
"""Words of table an output of a hidden layer: least count, turned."""
LAST_TABLE = 4
"""Words of table an output of the last layer: bare dot product, scale, bias, one left over."""
STEP_WORDS = 8
"""Rows of weights are padded to a multiple of these."""


def dot_of(x: Tensor, y: Tensor) -> Tensor:
    """Product of rows of small integers as int32; float sums of integers are exact."""
    dtype = torch.float32 if x.size(-1) <= EXACT_FLOAT32 else torch.float64
    return (x.to(dtype) @ y.to(dtype).transpose(-1, -2)).to(torch.int32)


def binary(x: Tensor, threshold: Tensor | None = None) -> Tensor:
    """Values of sgn(x - threshold) in {-1, +1}."""
    return binarise(x, threshold).to(torch.float32) * 2 - 1


def _scaled(
    dot: Tensor, x_scale: Tensor | None, w_scale: Tensor | None, bias: Tensor | None
) -> Tensor:
    """``(x_scale[i] * w_scale[o]) * dot + bias[o]``, leaving out what is missing."""
    value = dot.to(torch.float32)
    if x_scale is not None and w_scale is not None:
        value = (x_scale.unsqueeze(1) * w_scale) * value
    elif x_scale is not None:
        value = x_scale.unsqueeze(1) * value
    elif w_scale is not None:
        value = w_scale * value
    return value if bias is None else value + bias


def _values(a: Arguments, dot: Tensor, x_scale: Tensor | None, w_scale: Tensor | None) -> Tensor:
    if not a.integer:
        return _scaled(dot, x_scale, w_scale, a.bias)
    if x_scale is not None or w_scale is not None or a.bias is not None:
        raise ValueError("integer=True leaves no room for scales or a bias")
    return dot


def _words(a: Arguments, dot: Tensor, x_scale: Tensor | None, w_scale: Tensor | None) -> Tensor:
    """Words of ``(result >= threshold[o]) ^ flip[o]``."""
    return to_words(decide_product(a, dot, partial(_scaled, dot, x_scale, w_scale, a.bias)))


_BB = f"x:N,W(size) w:M,W(size) size:int {SCALES}"
_F = "x_threshold?:K x_gain?:K scale=True"


@operator(f"{_BB} {COMPARED} -> bits:N,M")
def bmm_bbb(a: Arguments) -> Tensor:
    """Words x ``[N, W]`` times words w ``[M, W]`` to words ``[N, ceil(M / 32)]``."""
    return _words(a, dot_of(signs(a.x, a.size), signs(a.w, a.size)), a.x_scale, a.w_scale)


@operator(f"{_BB} bias?:M integer=False -> value:N,M")
def bmm_bbf(a: Arguments) -> Tensor:
    """Words times words to float32, or int32 with ``integer`` (then no scale and no bias)."""
    return _values(a, dot_of(signs(a.x, a.size), signs(a.w, a.size)), a.x_scale, a.w_scale)


@operator(f"x:N,K@packable w:M,W(K) w_scale?:M {COMPARED} {_F} -> bits:N,M")
def bmm_fbb(a: Arguments) -> Tensor:
    """Float x ``[N, K]``, binarised inside, times words w to words."""
    dot = dot_of(binary(a.x, a.x_threshold), signs(a.w, a.x.size(1)))
    x_scale = row_scale(a.x, a.x_threshold, a.x_gain) if a.scale else None
    return _words(a, dot, x_scale, a.w_scale if a.scale else None)


@operator(f"x:N,K@packable w:M,W(K) w_scale?:M bias?:M {_F} integer=False -> value:N,M")
def bmm_fbf(a: Arguments) -> Tensor:
    """Float x, binarised inside, times words w to float32, or to int32 with ``integer``."""
    dot = dot_of(binary(a.x, a.x_threshold), signs(a.w, a.x.size(1)))
    x_scale = row_scale(a.x, a.x_threshold, a.x_gain) if a.scale and not a.integer else None
    return _values(a, dot, x_scale, a.w_scale if a.scale else None)


@operator(f"x:N,W(K) w:M,K@packable x_scale?:N {COMPARED} scale=True -> bits:N,M")
def bmm_bfb(a: Arguments) -> Tensor:
    """Words x times float w ``[M, K]``, binarised inside, to words."""
    dot = dot_of(signs(a.x, a.w.size(1)), binary(a.w))
    scales = (a.x_scale, row_scale(a.w)) if a.scale else (None, None)
    return _words(a, dot, *scales)


@operator("x:N,W(K) w:M,K@packable x_scale?:N bias?:M scale=True integer=False -> value:N,M")
def bmm_bff(a: Arguments) -> Tensor:
    """Words x times float w, binarised inside, to float32, or to int32 with ``integer``."""
    dot = dot_of(signs(a.x, a.w.size(1)), binary(a.w))
    w_scale = row_scale(a.w) if a.scale and not a.integer else None
    return _values(a, dot, a.x_scale if a.scale else None, w_scale)


@operator(f"x:N,K@packable w:M,K@packable {COMPARED} {_F} -> bits:N,M")
def bmm_ffb(a: Arguments) -> Tensor:
    """Float x times float w, both binarised inside, to words."""
    dot = dot_of(binary(a.x, a.x_threshold), binary(a.w))
    x_scale = row_scale(a.x, a.x_threshold, a.x_gain) if a.scale else None
    return _words(a, dot, x_scale, row_scale(a.w) if a.scale else None)


def digits_in_order(digits: Tensor) -> Tensor:
    """Digits ``[3, M, W, 8, 4]`` as ``[3, M, 32 W]`` in the order of features."""
    return digits.transpose(-1, -2).flatten(2)


@operator(
    "x:N,W(size) digits:3,M,W(size),8,4@int8 step:M size:int x_scale?:N bias?:M addend?:N,M "
    "-> floats:N,M"
)
def bits_linear(a: Arguments) -> Tensor:
    """Float32 ``[N, M]``: ``(x_scale * step) * (65536 S0 + (256 S1 + S2)) + bias + addend``.

    ``S`` are the exact integer sums of the digits with the signs of the words x ``[N, W]``; every
    float step after them is rounded to float32 on its own, in this order.
    """
    values = digits_in_order(a.digits)[:, :, : a.size].to(torch.float64)
    x = signs(a.x, a.size).to(torch.float64)
    sums = (x @ values.transpose(1, 2)).to(torch.int64)
    high, low = sums[0].to(torch.float32), (256 * sums[1] + sums[2]).to(torch.float32)
    factor = a.step if a.x_scale is None else a.x_scale.unsqueeze(1) * a.step
    value = factor * (65536.0 * high + low)
    value = value if a.bias is None else value + a.bias
    return value if a.addend is None else value + a.addend


def chain_words(size: int) -> int:
    """Words of a row of weights in an image."""
    return -(-words_for(size) // STEP_WORDS) * STEP_WORDS


def _last_values(a: Arguments) -> Tensor:
    if not a.layers or len(a.layers) % LAYER_NUMBERS:
        raise RuntimeError(
            f"linear_chain: layers must hold {LAYER_NUMBERS} numbers for each layer, "
            f"got {len(a.layers)} numbers"
        )
    return a.x.new_empty((a.x.size(0), a.layers[-LAYER_NUMBERS + 1]), dtype=torch.float32)


@operator("x:_,_@int32 image:_@int32 layers:ints", _last_values)
def linear_chain(a: Arguments) -> Tensor:
    """Float32 ``[N, M]`` of the last layer, of bits ``[N, ceil(K / 32)]`` through all layers.

    With p the set bits that row and weights share and |x| those of the row, a hidden bit is
    ``(2 p - |x| >= least) ^ turned`` and the result ``scale * (bare + 2 (2 p - |x|)) + bias``,
    every step rounded to float32.
    """
    x, value = a.x, a.x.new_empty(0)
    count = len(a.layers) // LAYER_NUMBERS
    for number in range(count):
        size, outputs, weights, table = a.layers[number * LAYER_NUMBERS :][:LAYER_NUMBERS]
        last = number + 1 == count
        words = a.image[weights : weights + outputs * chain_words(size)].view(outputs, -1)
        width = LAST_TABLE if last else HIDDEN_TABLE
        entries = a.image[table : table + outputs * width].view(outputs, width)
        bits = from_words(x, size).double()
        shared = bits @ from_words(words, size).double().t()
        counts = (2 * shared - bits.sum(1, keepdim=True)).to(torch.int32)
        if last:
            scale, bias = entries[:, 1:3].contiguous().view(torch.float32).unbind(1)
            value = scale * (entries[:, 0] + 2 * counts).to(torch.float32) + bias
        else:
            x = to_words((counts >= entries[:, 0]) ^ entries[:, 1].bool())
    return value
