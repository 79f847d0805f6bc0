"""A product and the aggregation of its result as one call, with narrow integers in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BlockedAdjacency
from bitgnn.inference.program import Runner, Step
from bitgnn.inference.steps.layouts import reads
from bitgnn.inference.steps.pairs import FloatPair
from bitgnn.ops.reference.heads import HEADS

__all__ = ["bind_narrow_product"]

_bmm_bspmm_narrow = torch.ops.bitgnn.bmm_bspmm_narrow.default
_bmm_bspmm_narrow_blocked = torch.ops.bitgnn.bmm_bspmm_narrow_blocked.default


def bind_narrow_product(
    step: Step,
    aggregation: Step,
    tensors: Mapping[str, Tensor],
    last_tensors: Mapping[str, Tensor],
    packing: Step | None = None,
    pack_tensors: Mapping[str, Tensor] | None = None,
    head: Step | None = None,
) -> Runner | None:
    """One call for a product to floats and their aggregation to floats; None for other pairs.

    Args:
        step: the product.
        aggregation: the only reader of its result.
        tensors: tensors of the product.
        last_tensors: tensors of the aggregation.
        packing: the packing step in front of the product, where it is part of the call.
        pack_tensors: its tensors.
        head: one of :data:`HEADS`, the only reader of the aggregation, where it is part of the
            call.
    """
    if step.kind != "bmm_bbf" or aggregation.kind != "bspmm_fbf" or "bias" in tensors:
        return None
    pair = FloatPair.of(step, aggregation, tensors, last_tensors, packing, pack_tensors)
    x, graph, scale = pair.x, pair.graph, pair.x_scale
    weight, size, w_scale, bias = pair.weight, pair.size, pair.w_scale, pair.bias
    packed, number = pair.packing, 0 if head is None else HEADS[head.kind]
    out = pair.out if head is None else head.outputs[0]

    @reads("csr", "blocked")
    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        a = graphs[graph]
        x_scale = None if scale is None else v[scale]
        rest = (x_scale, w_scale, *packed, a.row, a.col, bias, number)
        if isinstance(a, BlockedAdjacency):
            v[out] = _bmm_bspmm_narrow_blocked(v[x], weight, size, *a.blocked().arguments, *rest)
        else:
            v[out] = _bmm_bspmm_narrow(v[x], weight, size, a.rowptr, a.indices, *rest)

    return run
