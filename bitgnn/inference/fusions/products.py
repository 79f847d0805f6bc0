"""One call for a product of bits with the packing in front of it or the aggregation behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.inference.step import Apply, Step, Tensors
from bitgnn.inference.steps.aggregates import aggregate_bits, words_of

__all__ = ["Packing", "aggregated_product", "packed_product", "packing_of"]

# Bound once: resolving an overload by name costs as much as a small kernel.
_bmm_bbb = torch.ops.bitgnn.bmm_bbb.default
_bmm_fbb = torch.ops.bitgnn.bmm_fbb.default
_bmm_fbf = torch.ops.bitgnn.bmm_fbf.default
_bmm_add = torch.ops.bitgnn.bmm_add.default
_bmm_bspmm = torch.ops.bitgnn.bmm_bspmm.default
Packing = tuple[Tensor | None, Tensor | None, bool]
"""Threshold and gain of a packing step, and whether it measures the row scale."""


def packing_of(
    group: Sequence[Step], own: Sequence[Tensors]
) -> tuple[Packing | None, Sequence[Step], Sequence[Tensors]]:
    """The packing step in front of a product, if any, and the steps behind it."""
    if not group[0].kind.startswith("pack"):
        return None, group, own
    scaled = group[1].attributes["scaled"]
    return (own[0].get("threshold"), own[0].get("gain"), scaled), group[1:], own[1:]


def packed_product(group: Sequence[Step], own: Sequence[Tensors]) -> Apply | None:
    """One call for a packing step and the product behind it."""
    packing, (step,), (tensors,) = packing_of(group, own)
    assert packing is not None, "the group begins with a packing step"
    weight, size, scaled = tensors["weight"], step.attributes["size"], step.attributes["scaled"]
    w_scale, bias = tensors.get("weight_scale"), tensors.get("bias")
    compared = tensors.get("threshold"), tensors.get("flip")
    if step.kind.startswith("bmm_add"):
        rest = (w_scale, bias, *compared, *packing, step.kind == "bmm_add_bits")
        return lambda x, addend: _bmm_add(x, weight, addend, size, None, *rest)
    if not scaled and w_scale is not None:
        return None  # without a row scale these two leave the weight's scale out as well
    if step.kind == "bmm_bbb":
        return lambda x: _bmm_fbb(x, weight, w_scale, None, *compared, *packing)
    return lambda x: _bmm_fbf(x, weight, w_scale, bias, *packing)


def aggregated_product(group: Sequence[Step], own: Sequence[Tensors]) -> Apply | None:
    """One call for a product, perhaps with a packing step in front, and its aggregation."""
    packing, (step, aggregation), (tensors, last_tensors) = packing_of(group, own)
    to_bits = aggregation.kind.endswith("b")
    last = (last_tensors.get("bias"), last_tensors.get("threshold"))
    if step.kind == "bmm_bbb":
        if tensors.keys() != {"weight"}:
            return None
        return _aggregated_bits(step, tensors["weight"], packing, last, to_bits)
    if "bias" in tensors:
        return None
    weight, size, w_scale = tensors["weight"], step.attributes["size"], tensors.get("weight_scale")
    packed = packing or (None, None, False)

    def floats(x: Tensor, *rest: Any) -> Any:
        *scale, a = rest
        return _bmm_bspmm(
            x, weight, size, a.rowptr, a.indices, scale[0] if scale else None, w_scale, *packed,
            a.row_scale, a.col_scale, *last, False, to_bits, trusted=True,
        )  # fmt: skip

    return floats


def _aggregated_bits(
    step: Step,
    weight: Tensor,
    packing: Packing | None,
    last: tuple[Tensor | None, Tensor | None],
    to_bits: bool,
) -> Apply:
    """One call for a product to bits and their aggregation; two where the graph is not CSR."""
    size, hidden_size = step.attributes["size"], step.attributes["out"]
    x_threshold, words = None if packing is None else packing[0], words_of(hidden_size)
    aggregate = aggregate_bits(to_bits, hidden_size, last[to_bits])
    packed = (None, None, x_threshold, None, False)

    def bits(x: Tensor, *rest: Any) -> Any:
        a = rest[-1]
        if a.planned_layout(words) == "csr":
            return _bmm_bspmm(
                x, weight, size, a.rowptr, a.indices, *packed, a.row_scale, None, *last, True,
                to_bits, trusted=True,
            )  # fmt: skip
        if packing is None:
            return aggregate(_bmm_bbb(x, weight, size), a)
        return aggregate(_bmm_fbb(x, weight, None, None, None, None, x_threshold, None, False), a)

    return bits
