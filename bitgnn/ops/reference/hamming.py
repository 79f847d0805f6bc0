"""Reference of the nearest codes by Hamming distance."""

import torch
from torch import Tensor

from bitgnn.ops.reference.pack import from_words
from bitgnn.ops.reference.table import Arguments, operator


def _check_k(k: int, codes: int) -> None:
    if not 0 <= k <= codes:
        raise RuntimeError(f"hamming_topk: k must be from 0 to the {codes} rows of codes, got {k}")


def _nearest(a: Arguments) -> tuple[Tensor, Tensor]:
    """Empty distances and indices ``[M, k]``."""
    _check_k(a.k, a.codes.size(0))
    shape = (a.queries.size(0), a.k)
    return (
        a.queries.new_empty(shape, dtype=torch.int32),
        a.queries.new_empty(shape, dtype=torch.int64),
    )


@operator("queries:M,W(size) codes:N,W(size) size:int k:int", _nearest)
def hamming_topk(a: Arguments) -> tuple[Tensor, Tensor]:
    r"""Distances int32 and indices int64 ``[M, k]`` of the codes nearest to each query.

    .. math:: d_{ij} = \sum_{b < \mathrm{size}} q_{ib} \oplus c_{jb}

    Nearest first, of equally near ones the smaller index first. Padding bits count nowhere.

    Raises:
        RuntimeError: ``k`` is negative or larger than the number of codes.
    """
    _check_k(a.k, a.codes.size(0))
    queries = from_words(a.queries, a.size).to(torch.float32)
    codes = from_words(a.codes, a.size).to(torch.float32)
    # Sums of float32 are exact below 2^24.
    distances = queries.sum(1, keepdim=True) + codes.sum(1) - 2 * (queries @ codes.T)
    nearest, indices = distances.to(torch.int32).sort(dim=1, stable=True)
    return nearest[:, : a.k].contiguous(), indices[:, : a.k].contiguous()
