"""Steps on ternary activations: products with binary weights, packing, sums of neighbours."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency
from bitgnn.inference.step import Apply, Register, Step, StepCheck, StepKind, Tensors
from bitgnn.inference.steps.aggregates import WORD_BITS, aggregate_bits, words_of

__all__ = ["KINDS", "planes_size"]

_linear_ternary = torch.ops.bitgnn.linear_ternary.default
_pack_ternary = torch.ops.bitgnn.pack_ternary.default
_bmm_tbb = torch.ops.bitgnn.bmm_tbb.default
_bspmm_tbb = torch.ops.bitgnn.bspmm_tbb.default
_bspmm_tbf = torch.ops.bitgnn.bspmm_tbf.default
_pack = torch.ops.bitgnn.pack.default


def planes_size(size: int) -> int:
    """Features of a ternary row's two planes read as one row of bits."""
    return 2 * WORD_BITS * words_of(size)


def _check_product(check: StepCheck) -> tuple[Register, ...]:
    """Floats that are made ternary on the way in; weights packed."""
    size, out = check.sizes("size", "out")
    check.reads(("floats", size))
    check.ternary_scale()
    check.packed_weight(size, out)
    to_bits = check.kind == "bmm_tbb"
    allowed = ("threshold", "flip") if to_bits else ("bias",)
    check.vectors(out, "weight_scale", *allowed, required=["weight_scale"])
    return (Register("bits" if to_bits else "floats", out),)


def _make_product(step: Step, tensors: Tensors) -> Apply:
    size, weight, w_scale = step.attributes["size"], tensors["weight"], tensors["weight_scale"]
    scale, bias = tensors["scale"].view(()), tensors.get("bias")
    compared = tensors.get("threshold"), tensors.get("flip")
    if step.kind == "bmm_tbf":
        return lambda x: _linear_ternary(x, weight, size, scale, w_scale, bias)
    return lambda x: _bmm_tbb(
        *_pack_ternary(x, scale), weight, size, scale, w_scale, None, *compared
    )


def _check_pack(check: StepCheck) -> tuple[Register, ...]:
    (size,) = check.sizes("size")
    check.reads(("floats", size))
    check.ternary_scale()
    check.vectors(None)
    return (Register("bits", planes_size(size)),)


def _make_pack(step: Step, tensors: Tensors) -> Apply:
    scale = tensors["scale"].view(())
    return lambda x: _pack_ternary(x, scale)[0].flatten(1)


def _check_sums(check: StepCheck) -> tuple[Register, ...]:
    """Both planes of ternary rows as one row of bits."""
    (size,) = check.sizes("size")
    check.reads(("bits", planes_size(size)))
    check.ternary_scale()
    to_bits = check.kind == "bspmm_tbb"
    check.vectors(size, "threshold" if to_bits else "bias")
    return (Register("bits" if to_bits else "floats", size),)


def _make_sums(step: Step, tensors: Tensors) -> Apply:
    r"""``((row * scale) * t) + bias`` with the integers t = #{+1} - #{-1} of the neighbours.

    Over CSR that is ``bspmm_tbf``. In other layouts both planes are aggregated in one pass as bits
    of +-1: sums are twice the set bits less the degree, so t is half of their difference, exactly.
    """
    size = step.attributes["size"]
    planes, words = planes_size(size), words_of(size)
    aggregate = aggregate_bits(False, planes, None)
    scale, bias = tensors["scale"].view(()), tensors.get("bias")
    to_bits, threshold = step.kind == "bspmm_tbb", tensors.get("threshold")
    half = planes // 2

    def sums(x: Tensor, a: BitAdjacency) -> Any:
        row = a.row_scale
        if a.planned_layout(2 * words) == "csr":
            factor = scale.expand(a.shape[0]).contiguous() if row is None else row * scale
            pattern = (x.view(-1, 2, words), size, a.rowptr, a.indices, factor)
            if to_bits:
                return _bspmm_tbb(*pattern, threshold, trusted=True)
            return _bspmm_tbf(*pattern, bias, trusted=True)
        counts = aggregate(x, a, use_row=False)
        t = (counts[:, :size] - counts[:, half : half + size]).mul_(0.5)
        t.mul_(scale if row is None else (row * scale).unsqueeze(1))
        if to_bits:
            return _pack(t, threshold)
        return t if bias is None else t.add_(bias)

    return sums


KINDS = (
    StepKind("bmm_tbf", _check_product, _make_product),
    StepKind("bmm_tbb", _check_product, _make_product),
    StepKind("pack_ternary", _check_pack, _make_pack),
    StepKind("bspmm_tbf", _check_sums, _make_sums, "pattern"),
    StepKind("bspmm_tbb", _check_sums, _make_sums, "pattern"),
)
