"""A product and the aggregation of its result as one call, with narrow integers in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency, BlockedAdjacency
from bitgnn.inference.program import Runner, Step
from bitgnn.inference.steps.layouts import aggregated_by_parts, reads
from bitgnn.inference.steps.pairs import FloatPair

__all__ = ["bind_narrow_product"]

_bmm_bspmm_narrow = torch.ops.bitgnn.bmm_bspmm_narrow.default


def bind_narrow_product(
    step: Step,
    aggregation: Step,
    tensors: Mapping[str, Tensor],
    last_tensors: Mapping[str, Tensor],
    packing: Step | None = None,
    pack_tensors: Mapping[str, Tensor] | None = None,
) -> Runner | None:
    """One call for a product to floats and their aggregation to floats; None for other pairs.

    Args:
        step: the product.
        aggregation: the only reader of its result.
        tensors: tensors of the product.
        last_tensors: tensors of the aggregation.
        packing: the packing step in front of the product, where it is part of the call.
        pack_tensors: its tensors.
    """
    if step.kind != "bmm_bbf" or aggregation.kind != "bspmm_fbf" or "bias" in tensors:
        return None
    pair = FloatPair.of(step, aggregation, tensors, last_tensors, packing, pack_tensors)
    x, out, graph, scale = pair.x, pair.out, pair.graph, pair.x_scale
    weight, size, w_scale, bias = pair.weight, pair.size, pair.w_scale, pair.bias
    packed, columns = pair.packing, weight.size(0)

    @reads("csr", "blocked")
    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        x_scale = None if scale is None else v[scale]

        def aggregate(a: BitAdjacency) -> Tensor:
            result: Tensor = _bmm_bspmm_narrow(
                v[x], weight, size, a.rowptr, a.indices, x_scale, w_scale, *packed,
                a.row, a.col, bias,
            )  # fmt: skip
            return result

        a = graphs[graph]
        if isinstance(a, BlockedAdjacency):
            v[out] = aggregated_by_parts(a, columns, torch.float32, aggregate)
        else:
            v[out] = aggregate(a)

    return run
