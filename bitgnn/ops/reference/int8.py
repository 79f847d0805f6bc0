"""Reference of 8-bit rows: their codes, and products with 8-bit weights.

Codes and weights are signed bytes; rows are padded with zeros to whole pieces of 16 bytes. ``dot``
is the exact int32 product of a row and the weights of an output; every float step is rounded to
float32 on its own, in the order written here.
"""

import torch
from torch import Tensor
from torch.nn import functional

from bitgnn.bits.int8 import MOST, MOST_FEATURES, bytes_for
from bitgnn.ops.reference.pack import decide, to_words
from bitgnn.ops.reference.table import Arguments, operator

SOURCES = (torch.float32, torch.float16, torch.bfloat16)
"""Types that rows are quantised from."""


def to_codes(value: Tensor) -> Tensor:
    """Int8 ``clamp(rint(value), -127, 127)`` of float32, ties to even, NaN as 0."""
    return value.nan_to_num(nan=0.0).round().clamp(-MOST, MOST).to(torch.int8)


def padded(codes: Tensor) -> Tensor:
    """Rows of codes ``[N, K]`` with zeros up to whole pieces of 16 bytes."""
    missing = bytes_for(codes.size(1)) - codes.size(1)
    return functional.pad(codes, (0, missing)) if missing else codes


def check_size(name: str, size: int) -> None:
    """Require few enough features for int32 to hold every product."""
    if not 0 <= size <= MOST_FEATURES:
        raise RuntimeError(f"{name}: size must lie between 0 and {MOST_FEATURES}, got {size}")


def _quantised(name: str, a: Arguments) -> Tensor:
    if a.x.dtype not in SOURCES:
        raise RuntimeError(f"{name}: x must be float32, float16 or bfloat16, got {a.x.dtype}")
    check_size(name, a.x.size(1))
    return to_codes((a.x.to(torch.float32) - a.centre) * a.inverse_step)


def _dot(name: str, codes: Tensor, weight: Tensor, size: int) -> Tensor:
    check_size(name, size)
    products = codes[:, :size].to(torch.float64) @ weight[:, :size].to(torch.float64).t()
    return products.to(torch.int64).to(torch.int32)


def _values(dot: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
    """``scale[o] * dot + shift[o]``, leaving out what is missing."""
    value = dot.to(torch.float32)
    value = value if scale is None else scale * value
    return value if shift is None else value + shift


_CODES = "codes:N,C(size) weight:M,C(size)"
_FLOATS = "x:N,K@floats centre:K inverse_step:K weight:M,C(K)"


@operator("x:N,K@floats centre:K inverse_step:K -> codes:N,K")
def pack_int8(a: Arguments) -> Tensor:
    """Codes ``clamp(rint((x - centre) * inverse_step), -127, 127)`` of x ``[N, K]``, padded.

    ``x`` is float32, float16 or bfloat16, converted to float32; difference and product are rounded
    to float32 each, ties to even. NaN becomes 0, so a constant column may have inverse step 0.
    """
    return padded(_quantised("pack_int8", a))


@operator(f"{_CODES} size:int scale?:M shift?:M addend?:N,M -> floats:N,M")
def bmm_iif(a: Arguments) -> Tensor:
    """Float32 ``scale[o] * dot + shift[o] + addend[i, o]`` of codes ``[N, C]``."""
    value = _values(_dot("bmm_iif", a.codes, a.weight, a.size), a.scale, a.shift)
    return value if a.addend is None else value + a.addend


@operator(f"{_CODES} size:int threshold?:M@int32 flip?:M -> bits:N,M")
def bmm_iib(a: Arguments) -> Tensor:
    """Words of ``(dot >= threshold[o]) ^ flip[o]``, thresholds int32."""
    return to_words(decide(_dot("bmm_iib", a.codes, a.weight, a.size), a.threshold, a.flip))


@operator(f"{_CODES} addend:N,M size:int scale?:M shift?:M threshold?:M -> bits:N,M")
def bmm_add_iib(a: Arguments) -> Tensor:
    """Words of ``scale[o] * dot + shift[o] + addend[i, o] >= threshold[o]``; NaN gives 0."""
    value = _values(_dot("bmm_add_iib", a.codes, a.weight, a.size), a.scale, a.shift)
    return to_words(decide(value + a.addend, a.threshold))


@operator(f"{_FLOATS} scale?:M shift?:M -> floats:N,M")
def bmm_fif(a: Arguments) -> Tensor:
    """Results of :func:`bmm_iif` on the codes of float rows ``[N, K]``, by :func:`pack_int8`."""
    dot = _dot("bmm_fif", _quantised("bmm_fif", a), a.weight, a.x.size(1))
    return _values(dot, a.scale, a.shift)


@operator(f"{_FLOATS} threshold?:M@int32 flip?:M -> bits:N,M")
def bmm_fib(a: Arguments) -> Tensor:
    """Results of :func:`bmm_iib` on the codes of float rows ``[N, K]``, by :func:`pack_int8`."""
    dot = _dot("bmm_fib", _quantised("bmm_fib", a), a.weight, a.x.size(1))
    return to_words(decide(dot, a.threshold, a.flip))
