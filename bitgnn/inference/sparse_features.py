"""Sparse features of frozen models: their bits, or those of the first product, by entries alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitTensor

PACKABLE = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8)
"""What packing to bits reads."""
MATRIX = 2
MOST_ENTRIES = 127
"""Entries of a row, on the mean, up to which their sum takes less time than packing them."""

_pack_csr = torch.ops.bitgnn.pack_csr.default
_bspmm_entries = torch.ops.bitgnn.bspmm_entries.default


class FirstBits(BitTensor):
    """Packed features ``[N, size]`` in whose place the words of their first product are."""

    NAME = "FirstBits"


class PatternProduct(NamedTuple):
    """What a first product with bit output reads where features are the pattern of their set bits.

    ``sum_k x[k] w[o, k] >= t`` is ``sum_{k set} w[o, k] >= (t + sum_k w[o, k]) / 2``, and a result
    that is flipped is one of the negative weights: a sum of weight columns with a threshold.

    Attributes:
        columns: words ``[K, ceil(M / 32)]``, the weights of each feature.
        bound: float32 ``[M]``, the smallest sum that sets the bit.
        sets_no_zeros: True on the CPU if the packing sets the bit of no feature that is 0.
    """

    columns: Tensor
    bound: Tensor
    sets_no_zeros: bool

    @classmethod
    def of(
        cls,
        weight: BitTensor,
        threshold: Tensor | None,
        flip: Tensor | None,
        x_threshold: Tensor | None,
    ) -> PatternProduct:
        """The operands for weights ``[M, K]``, and for the packing in front."""
        values = weight.to_float()
        total = values.sum(1, dtype=torch.float64)
        limit = torch.zeros_like(total) if threshold is None else threshold.double()
        bound = ((limit + total) / 2).ceil()
        if flip is not None:
            values = torch.where(flip[:, None], -values, values)
            # No sum is less than NaN, but none reaches it either: a flipped bit is always set.
            flipped = ((-limit - total) / 2).floor() + 1
            bound = torch.where(flip, flipped.nan_to_num(-torch.inf, torch.inf, -torch.inf), bound)
        columns = torch.ops.bitgnn.pack(values.t().contiguous())
        if x_threshold is None or x_threshold.device.type != "cpu":
            return cls(columns, bound.float(), False)
        return cls(columns, bound.float(), bool((x_threshold > 0).all()))


def is_sparse(x: Any) -> bool:
    """True for a sparse tensor of torch's."""
    return isinstance(x, Tensor) and x.layout is not torch.strided


def require_dense(name: str, x: Any) -> None:
    """Refuse sparse tensors where steps read features as they lie."""
    if is_sparse(x):
        raise TypeError(
            f"{name}: x must be dense or the result of pack_features, got a tensor of layout "
            f"{x.layout}"
        )


def packed_entries(name: str, x: Tensor, size: int, threshold: Tensor | None) -> BitTensor | None:
    """Bits ``[N, size]`` of ``x >= threshold``, those of ``x.to_dense()``.

    Entries of a place count as their sum, a place without one is 0. None where ``x`` is no matrix
    ``[N, size]`` in CSR or, on the CPU, COO: its dense form is packed then.

    Raises:
        ValueError: an index lies outside of ``x``, which torch's constructors do not look at.
    """
    if threshold is not None and threshold.device != x.device:
        return None
    words = _of_entries(name, x, size, lambda *csr: _pack_csr(*csr, size, threshold))
    return None if words is None else BitTensor._trusted(words, size)


def multiplied_entries(
    name: str, x: Tensor, size: int, threshold: Tensor | None, product: PatternProduct
) -> FirstBits | None:
    """The first product of the bits of ``x >= threshold``, as :func:`packed_entries` gives them.

    None also where they are no pattern of entries, as on a GPU, where nobody looks, or where rows
    have many.

    Raises:
        ValueError: an index lies outside of ``x``.
    """
    columns, bound, sets_no_zeros = product
    if not sets_no_zeros or x.dim() != MATRIX or x._nnz() > MOST_ENTRIES * x.size(0):
        return None
    outputs = bound.size(0)

    def multiply(*csr: Tensor) -> Tensor:
        found: Tensor = _bspmm_entries(columns, outputs, *csr, threshold, bound)
        return found

    words = _of_entries(name, x, size, multiply)
    return None if words is None else FirstBits._trusted(words, size)


def _of_entries(name: str, x: Tensor, size: int, operator: Callable[..., Tensor]) -> Tensor | None:
    """``operator(rowptr, indices, values)`` of a matrix ``[N, size]``, None for what is none."""
    fits = x.dim() == MATRIX and x.size(1) == size and x.dtype in PACKABLE
    if not fits or x.requires_grad or x.is_meta or torch.compiler.is_compiling():
        return None
    if x.layout is torch.sparse_csr:
        csr = x.crow_indices(), x.col_indices(), x.values()
    elif x.layout is torch.sparse_coo and x.device.type == "cpu" and x.sparse_dim() == MATRIX:
        csr = _csr_of(name, x)
    else:
        return None
    if csr[2].dim() != 1:
        return None
    try:
        return operator(*csr)
    except RuntimeError as error:
        raise ValueError(f"{name}: x must be a valid sparse matrix, got: {error}") from error


def _csr_of(name: str, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row pointer, columns and values of a matrix in COO."""
    if not x.is_coalesced():
        # Entries in order need no look here: where rows or columns lie outside, operators say so.
        for axis, (own, most) in enumerate(zip(x._indices(), x.shape, strict=True)):
            if own.numel() and not (int(own.min()) >= 0 and int(own.max()) < most):
                raise ValueError(
                    f"{name}: x must be a valid sparse matrix, got indices from {int(own.min())} "
                    f"to {int(own.max())} along dimension {axis} of size {most}"
                )
        x = x.coalesce()
    rows, columns = x._indices()
    return torch.searchsorted(rows, torch.arange(x.size(0) + 1)), columns, x._values()
