"""One call for packing floats to 8-bit rows and the one product that reads these."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.inference.step import Apply, Step, Tensors

_bmm_fif = torch.ops.bitgnn.bmm_fif.default
_bmm_fib = torch.ops.bitgnn.bmm_fib.default


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
