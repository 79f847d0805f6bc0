"""One call for a product of bits with the packing in front of it or the aggregation behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency
from bitgnn.bits.tensor import words_for
from bitgnn.inference.step import Apply, Step, Tensors
from bitgnn.inference.steps.products import aggregate_bits
from bitgnn.ops.reference.pairs import HEADS, MAX_NARROW_SIZE

# Bound once: resolving an overload by name costs as much as a small kernel.
_bmm_bbb = torch.ops.bitgnn.bmm_bbb.default
_bmm_fbb = torch.ops.bitgnn.bmm_fbb.default
_bmm_fbf = torch.ops.bitgnn.bmm_fbf.default
_bmm_add = torch.ops.bitgnn.bmm_add.default
_bmm_bspmm = torch.ops.bitgnn.bmm_bspmm.default
_bmm_bspmm_narrow = torch.ops.bitgnn.bmm_bspmm_narrow.default
Packing = tuple[Tensor | None, Tensor | None, bool]
"""Threshold and gain of a packing step, and whether it measures the row scale."""
MOST_NARROW_COLUMNS = 48
"""Columns up to which rows are narrow whatever reads them."""
ORDERED_ROWS, ORDERED_EDGES, ORDERED_DEGREE = 1 << 15, 1 << 23, 4
"""Sums of narrow rows gain from an order from so many rows on, or so many edges. Rows of a smaller
mean degree are left as they lie: they gain little, and batches of sampled neighbours, which are
such rows, are used once and would pay for an order each."""


def _packing_of(
    group: Sequence[Step], own: Sequence[Tensors]
) -> tuple[Packing | None, Sequence[Step], Sequence[Tensors]]:
    """The packing step in front of a product, if any, and the steps behind it."""
    if not group[0].kind.startswith("pack"):
        return None, group, own
    scaled = group[1].attributes["scaled"]
    return (own[0].get("threshold"), own[0].get("gain"), scaled), group[1:], own[1:]


def packed_product(group: Sequence[Step], own: Sequence[Tensors]) -> Apply | None:
    """One call for a packing step and the product behind it."""
    packing, (step,), (tensors,) = _packing_of(group, own)
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
    packing, (step, aggregation), (tensors, last_tensors) = _packing_of(group, own)
    to_bits = aggregation.kind.endswith("b")
    last = (last_tensors.get("bias"), last_tensors.get("threshold"))
    weight, size, w_scale = tensors["weight"], step.attributes["size"], tensors.get("weight_scale")
    if step.kind == "bmm_bbf":
        if "bias" in tensors:
            return None
        packed = packing or (None, None, False)

        def floats(x: Tensor, *rest: Any) -> Any:
            *scale, a = rest
            return _bmm_bspmm(
                x, weight, size, a.rowptr, a.indices, scale[0] if scale else None, w_scale,
                *packed, a.row_scale, a.col_scale, *last, False, to_bits, trusted=True,
            )  # fmt: skip

        return floats
    if tensors.keys() != {"weight"}:
        return None
    hidden_size = step.attributes["out"]
    x_threshold, words = None if packing is None else packing[0], words_for(hidden_size)
    aggregate = aggregate_bits(to_bits, hidden_size, last[to_bits])
    packed_bits = (None, None, x_threshold, None, False)

    def bits(x: Tensor, *rest: Any) -> Any:
        """Two calls of operators where the graph is not CSR."""
        a = rest[-1]
        if not a.reads_slices(words):
            return _bmm_bspmm(
                x, weight, size, a.rowptr, a.indices, *packed_bits, a.row_scale, None, *last, True,
                to_bits, trusted=True,
            )  # fmt: skip
        if packing is None:
            return aggregate(_bmm_bbb(x, weight, size), a)
        return aggregate(_bmm_fbb(x, weight, None, None, None, None, x_threshold, None, False), a)

    return bits


def row_order_of(adjacency: BitAdjacency) -> Tensor | None:
    """The order of rows that a sum of narrow rows on a GPU gains from, or None.

    It is found with the first call and then belongs to the adjacency, see
    :meth:`~bitgnn.BitAdjacency.row_order`.
    """
    rows, edges = adjacency.shape[0], adjacency.nnz
    pays = edges >= ORDERED_EDGES or ORDERED_ROWS <= rows <= edges // ORDERED_DEGREE
    return adjacency.row_order() if pays else None


def narrow_sums(group: Sequence[Step], own: Sequence[Tensors]) -> Apply | None:
    """One call for ``bmm_bbf`` and ``bspmm_fbf``, with what stands around them.

    That is a packing step in front, and a head or a product of the nodes' own bits that is added
    to the sums. None where rows may be held as floats.
    """
    packing, (step, aggregation, *ends), (tensors, last_tensors, *end_tensors) = _packing_of(
        group, own
    )
    weight, size = tensors["weight"], step.attributes["size"]
    w_scale, shift = tensors.get("weight_scale"), tensors.get("bias")
    bias, packed = last_tensors.get("bias"), packing or (None, None, False)
    if shift is not None and size > MAX_NARROW_SIZE:
        return None
    head, is_rooted = 0, bool(ends) and ends[0].kind == "bmm_add"
    if is_rooted:
        # Up to these sizes the product is narrow integers on every device, whatever the graph.
        columns = ends[0].attributes["out"]
        is_narrow = columns <= MOST_NARROW_COLUMNS and size <= MAX_NARROW_SIZE
        if not is_narrow or ends[0].inputs[-1] != aggregation.outputs[0]:
            return None
        root, root_size = end_tensors[0], ends[0].attributes["size"]
        root_weight, root_last = root["weight"], (root.get("weight_scale"), root.get("bias"))
    elif ends:
        head = HEADS[ends[0].kind]
    is_cuda = weight.is_cuda
    reads_scale = packing is None and step.attributes["scaled"]
    place = 1 if reads_scale else 0

    def sums(x: Tensor, *rest: Any) -> Any:
        a = rest[-1]
        added: tuple[Any, ...] = ()
        if is_rooted:
            root_scale = rest[place + 1] if len(rest) > place + 2 else None
            added = (rest[place], root_weight, root_size, root_scale, *root_last)
        # Compiled programs must not depend on the size of the graph that they are made with.
        can_order = is_cuda and not torch.compiler.is_compiling()
        order = row_order_of(a) if can_order else None  # sums of wide rows leave it aside
        return _bmm_bspmm_narrow(
            x, weight, size, a.rowptr, a.indices, rest[0] if reads_scale else None, w_scale,
            *packed, a.row_scale, a.col_scale, bias, head, *added, order=order, shift=shift,
            trusted=True,
        )  # fmt: skip

    return sums
