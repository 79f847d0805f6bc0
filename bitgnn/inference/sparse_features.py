"""Sparse features of frozen models: their bits, packed from the entries alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)

PACKABLE = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8)
"""What packing to bits reads."""
MATRIX = 2

_pack_csr = torch.ops.bitgnn.pack_csr.default


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


def packed_entries(name: str, x: Tensor, size: int, threshold: Tensor | None) -> Tensor | None:
    """Words ``[N, ceil(size / 32)]`` of ``x >= threshold``, those of ``x.to_dense()``.

    Entries of a place count as their sum, a place without one is 0. None where ``x`` is no matrix
    ``[N, size]`` in CSR or, on the CPU, COO: its dense form is packed then.

    Raises:
        ValueError: an index lies outside of ``x``, which torch's constructors do not look at.
    """
    fits = x.dim() == MATRIX and x.size(1) == size and x.dtype in PACKABLE
    if not fits or x.requires_grad or x.is_meta or torch.compiler.is_compiling():
        return None
    if x.layout is torch.sparse_csr and x.values().dim() == 1:
        rowptr, indices, values = x.crow_indices(), x.col_indices(), x.values()
    elif x.layout is torch.sparse_coo and x.device.type == "cpu" and x.sparse_dim() == MATRIX:
        places = x._indices()
        _check_places(name, places, x.shape)
        x = x.coalesce()
        places, values = x.indices(), x.values()
        indices = places[1]
        rowptr = torch.searchsorted(places[0], torch.arange(x.size(0) + 1))
    else:
        return None
    if threshold is not None and threshold.device != x.device:
        return None
    try:
        found: Tensor = _pack_csr(rowptr, indices, values, size, threshold)
    except RuntimeError as error:
        raise ValueError(f"{name}: x must be a valid sparse matrix, got: {error}") from error
    return found


def _check_places(name: str, places: Tensor, shape: torch.Size) -> None:
    for axis, (own, most) in enumerate(zip(places, shape, strict=True)):
        if own.numel() and not (int(own.min()) >= 0 and int(own.max()) < most):
            raise ValueError(
                f"{name}: x must be a valid sparse matrix, got indices from {int(own.min())} to "
                f"{int(own.max())} along dimension {axis} of size {most}"
            )
