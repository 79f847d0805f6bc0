"""ADD.xyz: element-wise sums (residual connections), letters for both operands and the output.

Operands and results are ``[N, K]``: F a tensor, B a ``BitTensor`` of +-1 times its scale, if any.
z = B is the bit of ``sum >= threshold[k]`` (float32 ``[K]``, 0 without one). TypeError and
ValueError are raised before any kernel runs. Inference only: ``bbb``, ``bbf`` and ``ffb`` carry
no gradient.
"""

import torch
from torch import Tensor

from bitgnn.bits import BitTensor
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call


def bbb(a: BitTensor, b: BitTensor, *, threshold: Tensor | None = None) -> BitTensor:
    """Bits of ``a_scale * a + b_scale * b >= threshold``; see the module."""
    name = "add.bbb"
    _arguments.bit_pair(name, a, b)
    _same_shape(name, a.shape, b.shape)
    words = call(name, "add_bbb", a.words, b.words, a.size, a.scale, b.scale, threshold)
    return BitTensor._trusted(words, a.size)


def bbf(a: BitTensor, b: BitTensor) -> Tensor:
    """Float32 ``a_scale * a + b_scale * b``; see the module."""
    _arguments.bit_pair("add.bbf", a, b)
    _same_shape("add.bbf", a.shape, b.shape)
    return torch.ops.bitgnn.add_bbf(a.words, b.words, a.size, a.scale, b.scale)


def ffb(
    a: Tensor, b: Tensor, *, threshold: Tensor | None = None, check_finite: bool = False
) -> BitTensor:
    """Bits of ``a + b >= threshold``, added in float32; see the module."""
    name = "add.ffb"
    _arguments.float_pair(name, a, b, check_finite)
    _same_shape(name, a.shape, b.shape)
    words = call(name, "add_ffb", a.float(), b.float(), threshold)
    return BitTensor._trusted(words, a.size(1))


def fff(a: Tensor, b: Tensor) -> Tensor:
    """``torch.add(a, b)``, with gradients."""
    return torch.add(a, b)


def _same_shape(name: str, a: torch.Size, b: torch.Size) -> None:
    if a != b:
        raise ValueError(f"{name}: b must have shape {list(a)} like a, got {list(b)}")
