"""One call for a product of 8-bit rows and packing in front of it, or sums of neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits.tensor import words_for
from bitgnn.inference.step import Apply, Step, Tensors
from bitgnn.inference.steps.products import aggregate_bits

_bmm_fif = torch.ops.bitgnn.bmm_fif.default
_bmm_fib = torch.ops.bitgnn.bmm_fib.default
_bmm_add_iib = torch.ops.bitgnn.bmm_add_iib.default
_bspmm_bmm_iib = torch.ops.bitgnn.bspmm_bmm_iib.default


def packed_int8_product(group: Sequence[Step], own: Sequence[Tensors]) -> Apply | None:
    """One call for both; None where the product adds something."""
    product, (packing, tensors) = group[1], own
    centre, inverse_step, weight = packing["centre"], packing["inverse_step"], tensors["weight"]
    if len(product.inputs) > 1:
        return None
    if product.kind == "bmm_iib":
        compared = tensors.get("threshold"), tensors.get("flip")
        return lambda x: _bmm_fib(x, centre, inverse_step, weight, *compared)
    scaled = tensors.get("scale"), tensors.get("shift")
    return lambda x: _bmm_fif(x, centre, inverse_step, weight, *scaled)


def joint_int8_product(group: Sequence[Step], own: Sequence[Tensors]) -> Apply | None:
    """The sign of a sum of neighbours' bits and a product of the nodes' own codes, as one call.

    A GPU then passes the sums on as 16-bit integers, half the bytes of floats.
    """
    (sums, root), (sums_tensors, tensors) = group, own
    if root.inputs[-1] != sums.outputs[0]:
        return None
    hidden_size, size, weight = sums.attributes["size"], root.attributes["size"], tensors["weight"]
    sum_bias, words = sums_tensors.get("bias"), words_for(hidden_size)
    compared = tuple(tensors.get(name) for name in ("scale", "shift", "threshold"))
    sums_to_floats = aggregate_bits(False, hidden_size, sum_bias)

    def join(neighbours: Tensor, codes: Tensor, a: Any) -> Any:
        """Two calls of operators where the graph is read in slices."""
        if not a.reads_slices(words):
            pattern, row = (a.rowptr, a.indices), a.row_scale
            return _bspmm_bmm_iib(
                neighbours, *pattern, codes, weight, size, row, sum_bias, *compared, trusted=True
            )
        return _bmm_add_iib(codes, weight, sums_to_floats(neighbours, a), size, *compared)

    return join
