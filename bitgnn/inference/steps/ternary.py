"""Steps on ternary activations: products with binary weights, packing, sums of neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitTensor
from bitgnn.inference.program import Register, Runner, Step, StepKind
from bitgnn.inference.steps._checks import expect, expect_attributes, expect_tensors, positive
from bitgnn.inference.steps.layouts import bind_bits_aggregation, words_of

__all__ = ["KINDS", "planes_size"]

WORD_BITS = 32

_linear_ternary = torch.ops.bitgnn.linear_ternary.default
_pack_ternary = torch.ops.bitgnn.pack_ternary.default
_bmm_tbb = torch.ops.bitgnn.bmm_tbb.default
_bspmm_tbb = torch.ops.bitgnn.bspmm_tbb.default
_bspmm_tbf = torch.ops.bitgnn.bspmm_tbf.default
_pack = torch.ops.bitgnn.pack.default


def planes_size(size: int) -> int:
    """Features of a ternary row's two planes read as one row of bits."""
    return 2 * WORD_BITS * words_of(size)


def _check_scale(own: dict[str, Tensor]) -> None:
    """Take the scale out of a step's tensors; one number above 0."""
    scale = own.pop("scale", None)
    if scale is None or scale.shape != (1,) or scale.dtype != torch.float32:
        raise ValueError("tensor scale must be float32 [1]")
    if not (bool(scale > 0) and bool(scale.isfinite())):
        raise ValueError(f"scale must be positive and finite, got {float(scale)}")


def _features(registers: Sequence[Register], size: int) -> None:
    expect(registers, "floats")
    if registers[0].size not in (size, None):
        raise ValueError(f"the input must have {size} features, got {registers[0].size}")


def _check_product(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    """Floats that are made ternary on the way in; weights packed."""
    attributes = expect_attributes(step, size=int, out=int)
    size, out = positive("size", attributes["size"]), positive("out", attributes["out"])
    _features(registers, size)
    own = dict(tensors)
    _check_scale(own)
    weight = own.pop("weight", None)
    if weight is None:
        raise ValueError("tensor weight is missing")
    BitTensor(weight, size).validate()  # dtype, shape and clear padding
    if weight.size(0) != out:
        raise ValueError(f"weight must have {out} rows, got {weight.size(0)}")
    to_bits = step.kind == "bmm_tbb"
    allowed = ("weight_scale", "threshold", "flip") if to_bits else ("weight_scale", "bias")
    expect_tensors(own, dict.fromkeys(allowed, out), {"flip": torch.bool}, ["weight_scale"])
    return (Register("bits" if to_bits else "floats", out),)


def _bind_floats(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), size = step.inputs, step.outputs, step.attributes["size"]
    weight, w_scale, bias = tensors["weight"], tensors["weight_scale"], tensors.get("bias")
    scale = tensors["scale"].view(())

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _linear_ternary(v[x], weight, size, scale, w_scale, bias)

    return run


def _bind_bits(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), size = step.inputs, step.outputs, step.attributes["size"]
    weight, w_scale, scale = tensors["weight"], tensors["weight_scale"], tensors["scale"].view(())
    threshold, flip = tensors.get("threshold"), tensors.get("flip")

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        words, counts = _pack_ternary(v[x], scale)
        v[out] = _bmm_tbb(words, counts, weight, size, scale, w_scale, None, threshold, flip)

    return run


def _check_pack(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    size = positive("size", expect_attributes(step, size=int)["size"])
    _features(registers, size)
    own = dict(tensors)
    _check_scale(own)
    expect_tensors(own, {})
    return (Register("bits", planes_size(size)),)


def _bind_pack(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), scale = step.inputs, step.outputs, tensors["scale"].view(())

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _pack_ternary(v[x], scale)[0].flatten(1)

    return run


def _check_sums(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    """Both planes of ternary rows as one row of bits."""
    size = positive("size", expect_attributes(step, size=int)["size"])
    expect(registers, "bits")
    if registers[0].size != planes_size(size):
        raise ValueError(f"the input must be planes of {size} features, got {registers[0].size}")
    own = dict(tensors)
    _check_scale(own)
    to_bits = step.kind == "bspmm_tbb"
    expect_tensors(own, {"threshold" if to_bits else "bias": size})
    return (Register("bits" if to_bits else "floats", size),)


def _bind_sums(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    r"""``((row * scale) * t) + bias`` with the integers t = #{+1} - #{-1} of the neighbours.

    Over CSR that is ``bspmm_tbf``. In other layouts both planes are aggregated in one pass as bits
    of +-1: sums are twice the set bits less the degree, so t is half of their difference, exactly.
    """
    (x,), (out,), graph = step.inputs, step.outputs, step.graph
    assert graph is not None, "Program.check requires it"
    size = step.attributes["size"]
    planes, words = planes_size(size), words_of(size)
    aggregate = bind_bits_aggregation(False, planes, None)
    scale, bias = tensors["scale"].view(()), tensors.get("bias")
    to_bits, threshold = step.kind == "bspmm_tbb", tensors.get("threshold")
    half = planes // 2

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        a, x_words = graphs[graph], v[x]
        if a.planned_layout(2 * words) == "csr":
            factor = (
                scale.expand(a.shape[0]).contiguous()
                if a.row_scale is None
                else a.row_scale * scale
            )
            pattern = (x_words.view(-1, 2, words), size, a.rowptr, a.indices, factor)
            if to_bits:
                v[out] = _bspmm_tbb(*pattern, threshold, trusted=True)
            else:
                v[out] = _bspmm_tbf(*pattern, bias, trusted=True)
            return
        sums = aggregate(x_words, a, use_row=False)
        t = (sums[:, :size] - sums[:, half : half + size]).mul_(0.5)
        t.mul_(scale if a.row_scale is None else (a.row_scale * scale).unsqueeze(1))
        if to_bits:
            v[out] = _pack(t, threshold)
        else:
            v[out] = t if bias is None else t.add_(bias)

    return run


KINDS = (
    StepKind("bmm_tbf", _check_product, _bind_floats),
    StepKind("bmm_tbb", _check_product, _bind_bits),
    StepKind("pack_ternary", _check_pack, _bind_pack),
    StepKind("bspmm_tbf", _check_sums, _bind_sums, "pattern"),
    StepKind("bspmm_tbb", _check_sums, _bind_sums, "pattern"),
)
