"""Reference of sums of narrow float rows in the canonical order of narrow sums."""

import torch
from torch import Tensor

from bitgnn.ops.reference._sums import check_edges
from bitgnn.ops.reference.narrow import canonical_sums
from bitgnn.ops.reference.table import CSR, operator

__all__ = ["bspmm_slots"]


@operator(f"{CSR} x:N,K bias:K addend:P-1,K -> floats:P-1,K")
def bspmm_slots(
    x: Tensor,
    rowptr: Tensor,
    indices: Tensor,
    row: Tensor | None = None,
    bias: Tensor | None = None,
    addend: Tensor | None = None,
    trusted: bool = False,
) -> Tensor:
    """Float32 ``[M, C]``: ``row[i] * sum_j x[j] + bias + addend[i]``, summed in slots."""
    if not trusted:
        check_edges(rowptr, indices, x.size(0))
    value = canonical_sums(
        rowptr,
        x.size(1),
        lambda edges: torch.ones(len(edges), device=x.device),
        lambda edges: x[indices[edges].long()],
    )
    value = value if row is None else row.unsqueeze(1) * value
    value = value if bias is None else value + bias
    return value if addend is None else value + addend
