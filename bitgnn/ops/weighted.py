"""Sums over an adjacency with values: the operators of a float-valued matrix, or of bit planes."""

from __future__ import annotations

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency
from bitgnn.bits.planes import Planes
from bitgnn.ops.layout_choice import default_layout

_ops = torch.ops.bitgnn

PLANE_DEGREE = 24
"""Mean degree for each bit of the values from which counting planes, whose sums go through memory
one by one, is faster than adding up; measured on a CPU."""


def weighted_sums(
    x: Tensor, size: int | None, a: BitAdjacency, bias: Tensor | None = None
) -> Tensor:
    """Float32 ``[M, K]``: ``row_scale[i] * sum_e(values[e] * x[indices[e]]) + bias``.

    ``x`` are words of ``size`` features of +-1, or floats where ``size`` is None. Float values are
    summed in the order of a row's entries; integers in ``value_bits`` have exact sums below 2**24,
    on planes and as floats alike.
    """
    assert a.values is not None
    values, row = a.values, a.row_scale
    last = bias if row is None else None
    planes = None if size is None else _planes_of(a)
    if size is None:
        out = _ops.bspmm_fff(x, a.rowptr, a.indices, values, last, trusted=True)
    elif planes is None:
        out = _ops.bspmm_bff(x, size, a.rowptr, a.indices, values, None, last, trusted=True)
    else:
        out = _sums_of_planes(x, size, planes)
    if row is None:
        return out
    out = row.unsqueeze(1) * out
    return out if bias is None else out + bias


def weighted_bits(x: Tensor, size: int | None, a: BitAdjacency, threshold: Tensor | None) -> Tensor:
    """Words ``[M, W]`` of :func:`weighted_sums` ``>= threshold``, 0 without one."""
    if a.row_scale is not None:
        return _ops.pack(weighted_sums(x, size, a), threshold)
    if size is None:
        return _ops.bspmm_ffb(x, a.rowptr, a.indices, a.values, threshold, trusted=True)
    return _ops.bspmm_bfb(x, size, a.rowptr, a.indices, a.values, None, threshold, trusted=True)


def _planes_of(a: BitAdjacency) -> Planes | None:
    """The planes of values in bits, where they pay and can be had now."""
    if a.value_bits is None or torch.compiler.is_compiling():
        return None
    if a.nnz < PLANE_DEGREE * a.value_bits * a.shape[0]:
        return None
    return a.planes()


def _sums_of_planes(x: Tensor, size: int, planes: Planes) -> Tensor:
    """Exact integers, as float32."""
    total: Tensor | None = None
    for weight, pattern in zip(planes.weights, planes.patterns, strict=True):
        if default_layout(x.size(1), pattern) == "sliced":
            sums = _ops.bspmm_bbf_sliced(
                x, size, *pattern.sliced().arguments, None, None, True, trusted=True
            )
        else:
            sums = _ops.bspmm_bbf(
                x, size, pattern.rowptr, pattern.indices, None, None, True, trusted=True
            )
        total = sums.mul_(weight) if total is None else total.add_(sums, alpha=weight)
    assert total is not None
    return total.to(torch.float32)
