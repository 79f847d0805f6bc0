"""A product and the aggregation of its result as one call, with narrow integers in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.inference.program import Runner, Step
from bitgnn.inference.row_order import row_order_of
from bitgnn.inference.steps.fused_operands import FloatPair
from bitgnn.inference.wide_rows import MOST_NARROW_COLUMNS, is_wide, read_often
from bitgnn.ops.reference.heads import HEADS
from bitgnn.ops.reference.narrow import MAX_NARROW_SIZE

__all__ = ["bind_narrow_product", "bind_rooted_product"]

_bmm_bspmm_narrow = torch.ops.bitgnn.bmm_bspmm_narrow.default


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

    Returns:
        The call.
    """
    return _bind(step, aggregation, tensors, last_tensors, packing, pack_tensors, head, None, {})


def bind_rooted_product(
    step: Step,
    aggregation: Step,
    root: Step,
    tensors: Mapping[str, Tensor],
    last_tensors: Mapping[str, Tensor],
    root_tensors: Mapping[str, Tensor],
    packing: Step | None = None,
    pack_tensors: Mapping[str, Tensor] | None = None,
) -> Runner | None:
    """The same with a product of the nodes' own bits added to the sums.

    Args:
        step: the product.
        aggregation: the only reader of its result.
        root: the product that the aggregation is added to, its only reader.
        tensors: tensors of the product.
        last_tensors: tensors of the aggregation.
        root_tensors: tensors of the root's product.
        packing: the packing step in front of the product, where it is part of the call.
        pack_tensors: its tensors.

    Returns:
        The call, or None where the steps are others or their rows may be held as floats.
    """
    if step.kind != "bmm_bbf" or root.kind != "bmm_add":
        return None
    if root.inputs[-1] != aggregation.outputs[0]:
        return None
    size, columns = step.attributes["size"], root.attributes["out"]
    # Up to these sizes the product is narrow integers on every device, whatever the graph.
    if columns > MOST_NARROW_COLUMNS or size > MAX_NARROW_SIZE:
        return None
    return _bind(
        step, aggregation, tensors, last_tensors, packing, pack_tensors, None, root, root_tensors
    )


def _bind(
    step: Step,
    aggregation: Step,
    tensors: Mapping[str, Tensor],
    last_tensors: Mapping[str, Tensor],
    packing: Step | None,
    pack_tensors: Mapping[str, Tensor] | None,
    head: Step | None,
    root: Step | None,
    root_tensors: Mapping[str, Tensor],
) -> Runner | None:
    if step.kind != "bmm_bbf" or aggregation.kind != "bspmm_fbf":
        return None
    if "bias" in tensors and step.attributes["size"] > MAX_NARROW_SIZE:
        return None
    pair = FloatPair.of(step, aggregation, tensors, last_tensors, packing, pack_tensors)
    x, graph, scale = pair.x, pair.graph, pair.x_scale
    weight, size, w_scale = pair.weight, pair.size, pair.w_scale
    shift, bias = pair.shift, pair.bias
    packed, number = pair.packing, 0 if head is None else HEADS[head.kind]
    last = next((part for part in (head, root) if part is not None), aggregation)
    (out,) = last.outputs
    added = _added(root, root_tensors)
    columns, is_cuda = weight.size(0), weight.is_cuda

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        a = graphs[graph]
        x_scale = None if scale is None else v[scale]
        rest = (x_scale, w_scale, *packed, a.row_scale, a.col_scale, bias, number, *added(v))
        rest = (v[x], weight, size, a.rowptr, a.indices, *rest)
        # Compiled programs must not depend on the size of the graph that they are made with.
        can_order = is_cuda and not torch.compiler.is_compiling()
        is_ordered = can_order and not is_wide(columns, size, read_often(a))
        order = row_order_of(a) if is_ordered else None
        v[out] = _bmm_bspmm_narrow(*rest, order=order, shift=shift, trusted=True)

    return run


def _added(
    root: Step | None, tensors: Mapping[str, Tensor]
) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Takes the slots; gives the operator's arguments for the root's product."""
    if root is None:
        return lambda v: ()
    x, *scale, _ = root.inputs
    weight, size = tensors["weight"], root.attributes["size"]
    w_scale, bias = tensors.get("weight_scale"), tensors.get("bias")

    def added(v: list[Any]) -> tuple[Any, ...]:
        return v[x], weight, size, v[scale[0]] if scale else None, w_scale, bias

    return added
