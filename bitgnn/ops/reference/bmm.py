"""Reference of the seven binary matrix products BMM.xyz.

Letters are activation, weight, output: F full precision, B bits. ``dot`` is the product of the
+-1 values; every float step is rounded to float32 on its own, in the order written here.
"""

from functools import partial

import torch
from torch import Tensor

from bitgnn.ops.reference.pack import binarise, decide_product, row_scale, signs, to_words
from bitgnn.ops.reference.table import FLOAT_X, PACKED_W, PACKED_X, PRODUCT, operator

EXACT_FLOAT32 = 2**24
"""Integers up to here are exact in float32."""


def _dot(x: Tensor, w: Tensor) -> Tensor:
    """Integer product of +-1 matrices as int32 ``[N, M]``; float sums of integers are exact."""
    dtype = torch.float32 if x.size(1) <= EXACT_FLOAT32 else torch.float64
    return (x.to(dtype) @ w.to(dtype).t()).to(torch.int32)


def _binary(x: Tensor, threshold: Tensor | None = None) -> Tensor:
    """Values of sgn(x - threshold) in {-1, +1}."""
    return binarise(x, threshold).to(torch.float32) * 2 - 1


def _float_result(
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


def _float_or_integer(
    dot: Tensor,
    x_scale: Tensor | None,
    w_scale: Tensor | None,
    bias: Tensor | None,
    integer: bool,
) -> Tensor:
    if not integer:
        return _float_result(dot, x_scale, w_scale, bias)
    if x_scale is not None or w_scale is not None or bias is not None:
        raise ValueError("integer=True leaves no room for scales or a bias")
    return dot


def _bit_result(
    dot: Tensor,
    x_scale: Tensor | None,
    w_scale: Tensor | None,
    bias: Tensor | None,
    threshold: Tensor | None,
    flip: Tensor | None,
) -> Tensor:
    """Words of ``(result >= threshold[o]) ^ flip[o]``; see :func:`decide_product`."""
    value = partial(_float_result, dot, x_scale, w_scale, bias)
    return to_words(decide_product(dot, value, bias, threshold, flip))


@operator(f"{PACKED_X} {PACKED_W} {PRODUCT} -> bits:N,M")
def bmm_bbb(
    x: Tensor,
    w: Tensor,
    size: int,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
) -> Tensor:
    """Words x ``[N, W]`` times words w ``[M, W]`` to words ``[N, ceil(M / 32)]``."""
    dot = _dot(signs(x, size), signs(w, size))
    return _bit_result(dot, x_scale, w_scale, bias, threshold, flip)


@operator(f"{PACKED_X} {PACKED_W} {PRODUCT} -> value:N,M")
def bmm_bbf(
    x: Tensor,
    w: Tensor,
    size: int,
    x_scale: Tensor | None = None,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    integer: bool = False,
) -> Tensor:
    """Words times words to float32, or int32 with ``integer`` (then no scale and no bias)."""
    dot = _dot(signs(x, size), signs(w, size))
    return _float_or_integer(dot, x_scale, w_scale, bias, integer)


@operator(f"{FLOAT_X} w:M,W(K) w_scale:M {PRODUCT} -> bits:N,M")
def bmm_fbb(
    x: Tensor,
    w: Tensor,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    scale: bool = True,
) -> Tensor:
    """Float x ``[N, K]``, binarised inside, times words w to words."""
    dot = _dot(_binary(x, x_threshold), signs(w, x.size(1)))
    x_scale = row_scale(x, x_threshold, x_gain) if scale else None
    return _bit_result(dot, x_scale, w_scale if scale else None, bias, threshold, flip)


@operator(f"{FLOAT_X} w:M,W(K) w_scale:M {PRODUCT} -> value:N,M")
def bmm_fbf(
    x: Tensor,
    w: Tensor,
    w_scale: Tensor | None = None,
    bias: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    scale: bool = True,
    integer: bool = False,
) -> Tensor:
    """Float x, binarised inside, times words w to float32, or to int32 with ``integer``."""
    dot = _dot(_binary(x, x_threshold), signs(w, x.size(1)))
    x_scale = row_scale(x, x_threshold, x_gain) if scale and not integer else None
    return _float_or_integer(dot, x_scale, w_scale if scale else None, bias, integer)


@operator(f"w:M,K x:N,W(K) x_scale:N {PRODUCT} -> bits:N,M")
def bmm_bfb(
    x: Tensor,
    w: Tensor,
    x_scale: Tensor | None = None,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    scale: bool = True,
) -> Tensor:
    """Words x times float w ``[M, K]``, binarised inside, to words."""
    dot = _dot(signs(x, w.size(1)), _binary(w))
    w_scale = row_scale(w) if scale else None
    return _bit_result(dot, x_scale if scale else None, w_scale, bias, threshold, flip)


@operator(f"w:M,K x:N,W(K) x_scale:N {PRODUCT} -> value:N,M")
def bmm_bff(
    x: Tensor,
    w: Tensor,
    x_scale: Tensor | None = None,
    bias: Tensor | None = None,
    scale: bool = True,
    integer: bool = False,
) -> Tensor:
    """Words x times float w, binarised inside, to float32, or to int32 with ``integer``."""
    dot = _dot(signs(x, w.size(1)), _binary(w))
    w_scale = row_scale(w) if scale and not integer else None
    return _float_or_integer(dot, x_scale if scale else None, w_scale, bias, integer)


@operator(f"{FLOAT_X} w:M,K {PRODUCT} -> bits:N,M")
def bmm_ffb(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    threshold: Tensor | None = None,
    flip: Tensor | None = None,
    x_threshold: Tensor | None = None,
    x_gain: Tensor | None = None,
    scale: bool = True,
) -> Tensor:
    """Float x times float w, both binarised inside, to words."""
    dot = _dot(_binary(x, x_threshold), _binary(w))
    x_scale = row_scale(x, x_threshold, x_gain) if scale else None
    return _bit_result(dot, x_scale, row_scale(w) if scale else None, bias, threshold, flip)
