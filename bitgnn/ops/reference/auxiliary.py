"""Reference of the auxiliary operators ADD and CONCAT on bits and floats."""

import torch
from torch import Tensor

from bitgnn.ops.reference.pack import binarise, decide, from_words, to_words, unpack
from bitgnn.ops.reference.table import operator


@operator("a:N,W(size) b:N,W(size) a_scale:N b_scale:N -> floats:N,size")
def add_bbf(
    a: Tensor,
    b: Tensor,
    size: int,
    a_scale: Tensor | None = None,
    b_scale: Tensor | None = None,
) -> Tensor:
    """Words a, b ``[N, W]`` to float32 ``a_scale * a + b_scale * b`` ``[N, size]``."""
    return unpack(a, size, a_scale) + unpack(b, size, b_scale)


@operator("a:N,W(size) b:N,W(size) a_scale:N b_scale:N threshold:size -> bits:N,size")
def add_bbb(
    a: Tensor,
    b: Tensor,
    size: int,
    a_scale: Tensor | None = None,
    b_scale: Tensor | None = None,
    threshold: Tensor | None = None,
) -> Tensor:
    """Words of ``add_bbf(...) >= threshold``."""
    value = add_bbf(a, b, size, a_scale, b_scale)
    return to_words(decide(value, threshold))


@operator("a:N,K b:N,K threshold:K -> bits:N,K")
def add_ffb(a: Tensor, b: Tensor, threshold: Tensor | None = None) -> Tensor:
    """Words of ``a + b >= threshold`` for float a, b ``[N, K]``, added in float32."""
    return to_words(binarise(a.to(torch.float32) + b.to(torch.float32), threshold))


@operator("a:N,W(a_size) b:N,W(b_size) -> bits:N,a_size+b_size")
def concat_bbb(a: Tensor, b: Tensor, a_size: int, b_size: int) -> Tensor:
    """Words of the features of a followed by those of b."""
    return to_words(torch.cat([from_words(a, a_size), from_words(b, b_size)], dim=1))


@operator("a:N,W(a_size) b:N,W(b_size) a_scale:N b_scale:N -> floats:N,a_size+b_size")
def concat_bbf(
    a: Tensor,
    b: Tensor,
    a_size: int,
    b_size: int,
    a_scale: Tensor | None = None,
    b_scale: Tensor | None = None,
) -> Tensor:
    """Float32 ``[N, a_size + b_size]``: the (scaled) values of a followed by those of b."""
    return torch.cat([unpack(a, a_size, a_scale), unpack(b, b_size, b_scale)], dim=1)


@operator("a:N,K b:N,L threshold:_ -> bits:N,K+L")
def concat_ffb(a: Tensor, b: Tensor, threshold: Tensor | None = None) -> Tensor:
    """Words of ``[a, b] >= threshold`` for float a ``[N, Ka]``, b ``[N, Kb]``, as float32."""
    joined = torch.cat([a.to(torch.float32), b.to(torch.float32)], dim=1)
    return to_words(binarise(joined, threshold))
