"""Steps that one operator does together: a row for each pattern of kinds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from bitgnn.inference.fusions.int8 import joint_int8_product, packed_int8_product
from bitgnn.inference.fusions.joint import (
    chained_products,
    joint_product,
    linear_pair,
    pooled_convolution,
)
from bitgnn.inference.fusions.products import aggregated_product, narrow_sums, packed_product
from bitgnn.inference.step import Apply, Step, Tensors
from bitgnn.ops.linear import MOST_LAYERS
from bitgnn.ops.reference.pairs import HEADS

__all__ = ["LONGEST", "fused"]

LONGEST = MOST_LAYERS
"""Steps that one call does at most."""
Fusion = Callable[[Sequence[Step], Sequence[Tensors]], Apply | None]
_PACK = "pack(?:_scaled)? "
_LAST = "|".join((*HEADS, "bmm_add"))
FUSIONS: tuple[tuple[str, Fusion], ...] = (
    ("pack_int8 bmm_ii[bf]", packed_int8_product),
    ("bspmm_bbf bmm_add_iib", joint_int8_product),
    ("(?:bmm_bbb )+bmm_bbf", chained_products),
    (rf"(?:{_PACK})?bmm_bbf bspmm_fbf(?: (?:{_LAST}))?", narrow_sums),
    (rf"(?:{_PACK})?bmm_bb[bf] bspmm_[bf]b[bf]", aggregated_product),
    (rf"{_PACK}(?:bmm_bb[bf]|bmm_add|bmm_add_bits)", packed_product),
    ("(?:bmm_bbb )?bspmm_bbf bmm_add_bits", joint_product),
    ("bits_linear bspmm_fbf bits_linear", linear_pair),
    ("conv_bbb pool_bits", pooled_convolution),
)
"""Kinds of steps in their order, and what makes one call of them or says that none does it."""


def fused(group: Sequence[Step], own: Sequence[Tensors]) -> Apply | None:
    """One call for steps of which each is the only reader of the one before; None without one.

    It takes what the group reads from outside, step by step, and the adjacency if there is one.
    """
    kinds = " ".join(step.kind for step in group)
    rows = (fusion(group, own) for pattern, fusion in FUSIONS if re.fullmatch(pattern, kinds))
    return next((apply for apply in rows if apply is not None), None)
