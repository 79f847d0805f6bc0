"""CONCAT.xyz: features of one operand followed by those of another.

Operands are ``[N, Ka]`` and ``[N, Kb]``, the result ``[N, Ka + Kb]``: F a tensor, B a
``BitTensor``. z = B is the bit of ``value >= threshold[k]`` (float32 ``[Ka + Kb]``, 0 without
one). TypeError and ValueError are raised before any kernel runs. Inference only: ``bbb``, ``bbf``
and ``ffb`` carry no gradient.
"""

import torch
from torch import Tensor

from bitgnn.bits import BitTensor
from bitgnn.ops import _arguments

_OPS = torch.ops.bitgnn


def bbb(a: BitTensor, b: BitTensor) -> BitTensor:
    """Bits of a, then bits of b; scales are dropped, as a row has only one."""
    _arguments.bit_pair("concat.bbb", a, b)
    _same_rows("concat.bbb", a.words.size(0), b.words.size(0))
    words = _OPS.concat_bbb(a.words, b.words, a.size, b.size)
    return BitTensor._trusted(words, a.size + b.size)


def bbf(a: BitTensor, b: BitTensor) -> Tensor:
    """Float32 values of a, then of b, each times its scale, if any; see the module."""
    _arguments.bit_pair("concat.bbf", a, b)
    _same_rows("concat.bbf", a.words.size(0), b.words.size(0))
    result: Tensor = _OPS.concat_bbf(a.words, b.words, a.size, b.size, a.scale, b.scale)
    return result


def ffb(
    a: Tensor, b: Tensor, *, threshold: Tensor | None = None, check_finite: bool = False
) -> BitTensor:
    """Bits of ``[a, b] >= threshold``, compared in float32; see the module."""
    name = "concat.ffb"
    _arguments.float_pair(name, a, b, check_finite)
    _same_rows(name, a.size(0), b.size(0))
    size = a.size(1) + b.size(1)
    _arguments.vector(name, "threshold", threshold, size, a.device)
    words = _OPS.concat_ffb(a.to(torch.float32), b.to(torch.float32), threshold)
    return BitTensor._trusted(words, size)


def fff(a: Tensor, b: Tensor) -> Tensor:
    """``torch.cat([a, b], dim=1)``, with gradients."""
    return torch.cat([a, b], dim=1)


def _same_rows(name: str, a: int, b: int) -> None:
    if a != b:
        raise ValueError(f"{name}: b must have {a} rows like a, got {b}")
