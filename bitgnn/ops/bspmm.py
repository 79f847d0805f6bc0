"""BSpMM.xyz: the binary sparse products, letters for activation, adjacency and output.

``x`` is ``[N, K]``, the adjacency ``[M, N]`` (rows: destinations), the result ``[M, K]``. Letters
name how an operand is stored: F a tensor, B bits (``BitTensor``, ``BitAdjacency``), T ternary
values (``TernaryTensor``).

- y = B, x = F: ``row_scale[i] * sum_j(pattern[i, j] * (col_scale[j] * x[j])) + bias[k]``, float32.
  ``x`` may be float32, float16 or bfloat16 (float64 is rounded to float32), or int8 or int16:
  without ``col_scale`` their sums are exact, with it they are taken as float32.
- y = B, x = B: ``row_scale[i] * s + bias[k]`` with the integer ``s = 2 * count - degree``, the sum
  of the neighbours' +-1 values. Neither ``col_scale`` nor a scale of ``x`` can act on bits: they
  are left out (the paper's "bin" approximation; ``bff`` is the exact alternative).
- y = B, x = T: ``(row_scale[i] * scale) * s + bias[k]`` with the integer sum ``s`` of the
  neighbours' values in {-1, 0, +1}: as many +1 as there are neighbours' bits in
  ``pos``, less those in ``neg``. The scale of ``x``, if any, is one for all rows and takes part;
  ``col_scale`` is left out.
- y = F: ``sum_e(values[e] * x[indices[e]]) + bias[k]``, float32, for a torch sparse CSR or COO
  tensor, a ``torch_sparse.SparseTensor``, or a ``BitAdjacency``, whose values, or else factors, are
  the weights. A scale of bits ``x`` takes part. CSR with int32 indices and float32 values is read
  as it is; other forms are converted on every call.
- y = B over a ``BitAdjacency`` with values: these sums, exact weights for any ``x``; the scale of
  bits ``x`` is left out as above. There is no ``integer`` result and no layout but CSR.
- z = B: bit of ``result >= threshold[k]`` (0 without one), no bias; an empty row or a tie gives +1.

Sums with edge weights add or subtract the weight by the bit, in float32, one entry of the row after
the other: they are the same on every device and from run to run.

Bits, and ternary values, over a pattern may choose ``layout`` "csr", "sliced" or "frdc" (the
paper's 4 x 4 tiles); results are the same. None takes CSR, on a GPU "sliced" where a graph is dense
enough to gain from gathers out of shared memory. FRDC cannot hold duplicate edges: CSR then serves,
with a warning. A layout other than CSR is built on its first use,
which CUDA graph capture and ``torch.compile`` do not allow: call ``adjacency.sliced()`` or
``frdc()`` before; the default takes CSR there.

Every function raises TypeError (type, dtype) or ValueError (shape, device, value) before any
kernel runs. ``bias`` and ``threshold`` are float32 ``[K]``. Operators are for inference: results
carry no gradient. Source: BitGNN, section 3.2.
"""

from typing import Any

import torch
from torch import Tensor

from bitgnn.bits import BitAdjacency, BitTensor, TernaryTensor
from bitgnn.ops import _arguments
from bitgnn.ops._arguments import call
from bitgnn.ops.layout_choice import check_pattern, compressed_rows, pattern_arguments
from bitgnn.ops.weighted import weighted_bits, weighted_sums

# Operator of each layout.
_BBB = {"csr": "bspmm_bbb", "sliced": "bspmm_bbb_sliced", "frdc": "bspmm_bbb_frdc"}
_BBF = {"csr": "bspmm_bbf", "sliced": "bspmm_bbf_sliced", "frdc": "bspmm_bbf_frdc"}


def bbb(
    x: BitTensor,
    adjacency: BitAdjacency,
    *,
    threshold: Tensor | None = None,
    layout: str | None = None,
) -> BitTensor:
    """Bits over a pattern to bits; see the module for formula, shapes and errors."""
    name = "bspmm.bbb"
    _arguments.bit_matrix(name, "x", x)
    if _has_values(name, adjacency, layout):
        return _weighted_bits(name, x.words, x.size, adjacency, threshold)
    layout, pattern = pattern_arguments(name, x, adjacency, layout)
    words = call(
        name, _BBB[layout], x.words, x.size, *pattern, adjacency.row_scale, threshold, trusted=True
    )
    return BitTensor._trusted(words, x.size)


def bbf(
    x: BitTensor,
    adjacency: BitAdjacency,
    *,
    bias: Tensor | None = None,
    integer: bool = False,
    layout: str | None = None,
) -> Tensor:
    """Bits over a pattern to float32, or with ``integer`` to the int32 sums; see the module."""
    name = "bspmm.bbf"
    _arguments.bit_matrix(name, "x", x)
    _arguments.no_bias_with_integer(name, bias, integer)
    if _has_values(name, adjacency, layout, integer):
        return _weighted_sums(name, x.words, x.size, adjacency, bias)
    layout, pattern = pattern_arguments(name, x, adjacency, layout)
    row = None if integer else adjacency.row_scale
    return call(name, _BBF[layout], x.words, x.size, *pattern, row, bias, integer, trusted=True)


def tbb(
    x: TernaryTensor,
    adjacency: BitAdjacency,
    *,
    threshold: Tensor | None = None,
    layout: str | None = None,
) -> BitTensor:
    """Ternary values over a pattern to bits; see the module for formula, shapes and errors."""
    name = "bspmm.tbb"
    _arguments.ternary_matrix(name, "x", x)
    if _has_values(name, adjacency, layout):
        return BitTensor._trusted(call(name, "pack", tbf(x, adjacency), threshold), x.size)
    layout, pattern = pattern_arguments(name, _planes(x), adjacency, layout)
    # A positive factor in front of a comparison with zero changes nothing.
    row = adjacency.row_scale if threshold is None else _ternary_factor(x, adjacency)
    if layout == "csr":
        words = call(name, "bspmm_tbb", x.words, x.size, *pattern, row, threshold, trusted=True)
    else:
        sums = _ternary_sums(x, layout, pattern)
        values = sums.to(torch.float32) if row is None else row.unsqueeze(1) * sums
        words = call(name, "pack", values, threshold)
    return BitTensor._trusted(words, x.size)


def tbf(
    x: TernaryTensor,
    adjacency: BitAdjacency,
    *,
    bias: Tensor | None = None,
    integer: bool = False,
    layout: str | None = None,
) -> Tensor:
    """Ternary values over a pattern to float32, or with ``integer`` to int32; see the module."""
    name = "bspmm.tbf"
    _arguments.ternary_matrix(name, "x", x)
    if _has_values(name, adjacency, layout, integer):
        return _weighted_ternary(name, x, adjacency, bias)
    layout, pattern = pattern_arguments(name, _planes(x), adjacency, layout)
    _arguments.vector(name, "bias", bias, x.size, x.device)
    _arguments.no_bias_with_integer(name, bias, integer)
    row = None if integer else _ternary_factor(x, adjacency)
    if layout == "csr":
        return call(name, "bspmm_tbf", x.words, x.size, *pattern, row, bias, integer, trusted=True)
    sums = _ternary_sums(x, layout, pattern)
    if integer:
        return sums
    values = sums.to(torch.float32) if row is None else row.unsqueeze(1) * sums
    return values if bias is None else values + bias


def fbb(
    x: Tensor,
    adjacency: BitAdjacency,
    *,
    threshold: Tensor | None = None,
    check_finite: bool = False,
) -> BitTensor:
    """Floats or small integers over a pattern to bits; see the module."""
    name = "bspmm.fbb"
    x = _dense_pattern(name, x, adjacency, check_finite)
    if _has_values(name, adjacency):
        return _weighted_bits(name, x, None, adjacency, threshold)
    words = call(name, "bspmm_fbb", x, *adjacency.tensors[:4], threshold, trusted=True)
    return BitTensor._trusted(words, x.size(1))


def fbf(
    x: Tensor,
    adjacency: BitAdjacency,
    *,
    bias: Tensor | None = None,
    integer: bool = False,
    check_finite: bool = False,
) -> Tensor:
    """Floats or small integers over a pattern to float32; see the module.

    With ``integer`` the factors of the adjacency are left out and int8 or int16 ``x`` gives the
    exact int32 sums.
    """
    name = "bspmm.fbf"
    x = _dense_pattern(name, x, adjacency, check_finite, factors=not integer)
    if integer and x.is_floating_point():
        raise TypeError(f"{name}: x must be int8 or int16 with integer=True, got {x.dtype}")
    _arguments.no_bias_with_integer(name, bias, integer)
    if _has_values(name, adjacency, None, integer):
        return _weighted_sums(name, x, None, adjacency, bias)
    scales = (None, None) if integer else (adjacency.row_scale, adjacency.col_scale)
    csr = (adjacency.rowptr, adjacency.indices)
    return call(name, "bspmm_fbf", x, *csr, *scales, bias, integer, trusted=True)


def bfb(
    x: BitTensor, adjacency: Tensor | BitAdjacency, *, threshold: Tensor | None = None
) -> BitTensor:
    """Bits over a float matrix to bits; see the module for formula, shapes and errors."""
    name = "bspmm.bfb"
    _arguments.bit_matrix(name, "x", x)
    *matrix, checked = compressed_rows(name, adjacency, x.words.size(0), x.device)
    words = call(name, "bspmm_bfb", x.words, x.size, *matrix, x.scale, threshold, checked)
    return BitTensor._trusted(words, x.size)


def bff(x: BitTensor, adjacency: Tensor | BitAdjacency, *, bias: Tensor | None = None) -> Tensor:
    """Bits over a float matrix to float32; see the module for formula, shapes and errors."""
    name = "bspmm.bff"
    _arguments.bit_matrix(name, "x", x)
    *matrix, checked = compressed_rows(name, adjacency, x.words.size(0), x.device)
    return call(name, "bspmm_bff", x.words, x.size, *matrix, x.scale, bias, checked)


def ffb(
    x: Tensor,
    adjacency: Tensor | BitAdjacency,
    *,
    threshold: Tensor | None = None,
    check_finite: bool = False,
) -> BitTensor:
    """Floats over a float matrix to bits; see the module for formula, shapes and errors."""
    name = "bspmm.ffb"
    _arguments.float_matrix(name, "x", x, check_finite)
    *matrix, checked = compressed_rows(name, adjacency, x.size(0), x.device)
    words = call(name, "bspmm_ffb", _gathered(x), *matrix, threshold, checked)
    return BitTensor._trusted(words, x.size(1))


def fff(
    x: Tensor,
    adjacency: Tensor | BitAdjacency,
    *,
    bias: Tensor | None = None,
    check_finite: bool = False,
) -> Tensor:
    """Floats over a float matrix to float32; see the module for formula, shapes and errors."""
    name = "bspmm.fff"
    _arguments.float_matrix(name, "x", x, check_finite)
    *matrix, checked = compressed_rows(name, adjacency, x.size(0), x.device)
    return call(name, "bspmm_fff", _gathered(x), *matrix, bias, checked)


def _has_values(
    name: str, adjacency: BitAdjacency, layout: str | None = None, integer: bool = False
) -> bool:
    """True if edges have weights of their own, which are summed over CSR and to floats."""
    if not isinstance(adjacency, BitAdjacency) or adjacency.values is None:
        return False
    if layout not in (None, "csr"):
        raise ValueError(f"{name}: layout must be None or 'csr' over values, got {layout!r}")
    if integer:
        raise ValueError(f"{name}: integer must be False over an adjacency with values, got True")
    return True


def _weighted_sums(
    name: str, x: Tensor, size: int | None, adjacency: BitAdjacency, bias: Tensor | None
) -> Tensor:
    """Check the operands and add up; words of ``size`` features or floats."""
    check_pattern(name, adjacency, x.size(0), x.device)
    _arguments.vector(name, "bias", bias, x.size(1) if size is None else size, x.device)
    return weighted_sums(x, size, adjacency, bias)


def _weighted_bits(
    name: str, x: Tensor, size: int | None, adjacency: BitAdjacency, threshold: Tensor | None
) -> BitTensor:
    """The same to bits."""
    check_pattern(name, adjacency, x.size(0), x.device)
    width = x.size(1) if size is None else size
    _arguments.vector(name, "threshold", threshold, width, x.device)
    return BitTensor._trusted(weighted_bits(x, size, adjacency, threshold), width)


def _weighted_ternary(
    name: str, x: TernaryTensor, adjacency: BitAdjacency, bias: Tensor | None
) -> Tensor:
    """``(row_scale[i] * scale) * sum_e(values[e] * x[indices[e]]) + bias``."""
    check_pattern(name, adjacency, x.shape[0], x.device)
    _arguments.vector(name, "bias", bias, x.size, x.device)
    signs, factor = TernaryTensor._trusted(x.words, x.size, x.counts), _ternary_factor(x, adjacency)
    csr = (adjacency.rowptr, adjacency.indices, adjacency.values)
    if factor is None:
        return call(name, "bspmm_fff", signs.to_float(), *csr, bias, trusted=True)
    sums = factor.unsqueeze(1) * call(name, "bspmm_fff", signs.to_float(), *csr, trusted=True)
    return sums if bias is None else sums + bias


def _planes(x: TernaryTensor) -> BitTensor:
    """Both planes of each row, one after the other, as bits."""
    return BitTensor._trusted(x.words.flatten(1), 64 * x.words.size(2))


def _ternary_factor(x: TernaryTensor, adjacency: BitAdjacency) -> Tensor | None:
    """Factor of the sums: float32 ``[M]`` or None."""
    if x.scale is None or adjacency.row_scale is None:
        return adjacency.row_scale if x.scale is None else x.scale.repeat(adjacency.shape[0])
    return adjacency.row_scale * x.scale


def _ternary_sums(x: TernaryTensor, layout: str, pattern: tuple[Any, ...]) -> Tensor:
    """Int32 ``[M, K]``, by one aggregation of the planes as bits.

    It gives ``2 * count - degree`` of each plane, whose difference is twice the sum.
    """
    planes, half = _planes(x), 32 * x.words.size(2)
    operator = getattr(torch.ops.bitgnn, _BBF[layout])
    signs: Tensor = operator(planes.words, planes.size, *pattern, None, None, True, trusted=True)
    return (signs[:, : x.size] - signs[:, half : half + x.size]) >> 1


def _dense_pattern(
    name: str, x: Tensor, adjacency: BitAdjacency, check_finite: bool, factors: bool = True
) -> Tensor:
    """Check both operands; x in a dtype that the operators take."""
    _arguments.float_matrix(name, "x", x, check_finite, also=(torch.int8, torch.int16))
    check_pattern(name, adjacency, x.size(0), x.device)
    weighted = (factors and adjacency.col_scale is not None) or adjacency.values is not None
    return x.to(torch.float32) if weighted and not x.is_floating_point() else _gathered(x)


def _gathered(x: Tensor) -> Tensor:
    return x.to(torch.float32) if x.dtype == torch.float64 else x
