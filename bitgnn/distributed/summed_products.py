"""Products of summed bits: wide scores of a graph's rows without a row of scores for each edge."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.bits.int8 import MOST, bytes_for
from bitgnn.inference.operators import OVER_GRAPHS

HALF_BYTES = 2
"""Bytes of an integer product in rows that are summed."""
SUMMED_PRODUCT = "graph::summed_product"


def is_wide(weight: Tensor) -> bool:
    """Whether a row of products with packed weights takes more bytes than the bits it is of."""
    return HALF_BYTES * weight.size(0) > weight.size(1) * weight.element_size()


def summed_product(
    x: Tensor,
    size: int,
    graph: BitAdjacency,
    w: Tensor,
    w_scale: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    r""":math:`(r_i s_o) \sum_k w_{ok} \sum_{j \in N(i)} x_{jk} + b_o`, float32 ``[rows, out]``.

    Equal to the sum of the neighbours' products, whose integers are the same: 8-bit ones, but for
    rows whose sums these may not hold, which are multiplied in float64.
    """
    pattern = graph.rowptr, graph.indices
    sums = torch.ops.bitgnn.bspmm_bbf(x, size, *pattern, integer=True, trusted=True)
    signs = BitTensor._trusted(w, size).to_float()
    padding = (0, bytes_for(size) - size)
    codes, weight = sums.to(torch.int8), signs.to(torch.int8)
    if any(padding):
        codes, weight = pad(codes, padding), pad(weight, padding)
    long = long_rows(graph)
    sums = sums[long].double()
    found: Tensor = torch.ops.bitgnn.bmm_iif(codes, weight, size)
    found[long] = (sums @ signs.double().t()).float()
    row = None if graph.row_scale is None else graph.row_scale.unsqueeze(1)
    factor = row if w_scale is None else w_scale if row is None else row * w_scale
    if factor is not None:
        found *= factor
    return found if bias is None else found.add_(bias)


def long_rows(graph: BitAdjacency) -> Tensor:
    """Rows whose sums of signs may be no 8-bit integers, kept: their number is waited for."""
    found: Tensor = graph._kept(
        "long rows", lambda: (graph.rowptr.diff() > MOST).nonzero().squeeze(1)
    )
    return found


OVER_GRAPHS["summed_product"] = summed_product
