"""The layouts of a pattern that steps read, and aggregation of bits in each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency, BlockedAdjacency
from bitgnn.inference.program import Runner

__all__ = [
    "LAYOUTS",
    "Pattern",
    "aggregated_by_parts",
    "bind_bits_aggregation",
    "layouts_of",
    "reads",
    "words_of",
]

Pattern = BitAdjacency | BlockedAdjacency
"""What steps find as the graph where it holds a pattern."""

Aggregation = Callable[..., Tensor]

LAYOUTS = ("csr", "sliced", "blocked", "frdc")
"""Layouts in which a graph can be prepared."""

WORD_BITS = 32

# Bound once: resolving an overload by name costs as much as a small kernel.
_TO_BITS = {
    "csr": torch.ops.bitgnn.bspmm_bbb.default,
    "sliced": torch.ops.bitgnn.bspmm_bbb_sliced.default,
    "blocked": torch.ops.bitgnn.bspmm_bbb_blocked.default,
    "frdc": torch.ops.bitgnn.bspmm_bbb_frdc.default,
}
_TO_FLOATS = {
    "csr": torch.ops.bitgnn.bspmm_bbf.default,
    "sliced": torch.ops.bitgnn.bspmm_bbf_sliced.default,
    "blocked": torch.ops.bitgnn.bspmm_bbf_blocked.default,
    "frdc": torch.ops.bitgnn.bspmm_bbf_frdc.default,
}

AnyRunner = TypeVar("AnyRunner", bound=Runner)


def reads(*layouts: str) -> Callable[[AnyRunner], AnyRunner]:
    """Mark a bound step with the layouts of its graph that it reads; without a mark, CSR alone.

    Args:
        layouts: of :data:`LAYOUTS`. ``"sliced"`` and ``"frdc"`` come beside CSR,
            ``"blocked"`` in its place.
    """

    def mark(run: AnyRunner) -> AnyRunner:
        run.__dict__["layouts"] = frozenset(layouts)
        return run

    return mark


def layouts_of(run: Runner) -> frozenset[str]:
    """The layouts that :func:`reads` marked a bound step with."""
    marked: frozenset[str] = vars(run).get("layouts", frozenset(["csr"]))
    return marked


def words_of(size: int) -> int:
    """Words of a packed row of ``size`` features."""
    return -(-size // WORD_BITS)


def bind_bits_aggregation(to_bits: bool, size: int, last: Tensor | None) -> Aggregation:
    """The aggregation of packed rows in the layout that the graph was prepared in.

    Args:
        to_bits: packed results, else float32.
        size: features of a row.
        last: float32 ``[size]``, the threshold of packed results or the bias of floats.

    Returns:
        Takes words ``[N, W]``, the pattern, and whether its row factor acts; gives words
        ``[M, W]`` or float32 ``[M, size]``.
    """
    operators, words = _TO_BITS if to_bits else _TO_FLOATS, words_of(size)
    csr, sliced, blocked, frdc = (operators[layout] for layout in LAYOUTS)

    def aggregate(x: Tensor, a: Pattern, use_row: bool = True) -> Tensor:
        layout, row = a.planned_layout(words), a.row_scale if use_row else None
        if layout == "csr":
            result: Tensor = csr(x, size, a.rowptr, a.indices, row, last, trusted=True)
        elif layout == "sliced":
            assert isinstance(a, BitAdjacency), "no other adjacency has slices"
            result = sliced(x, size, *a.sliced().arguments, row, last, trusted=True)
        elif layout == "frdc":
            assert isinstance(a, BitAdjacency), "no other adjacency has tiles"
            result = frdc(x, size, *a.frdc_arguments, row, last, trusted=True)
        else:
            result = blocked(x, size, *a.blocked().arguments, row, last, trusted=True)
        return result

    return aggregate


def aggregated_by_parts(
    adjacency: BlockedAdjacency,
    width: int,
    dtype: torch.dtype,
    aggregate: Callable[[BitAdjacency], Tensor],
) -> Tensor:
    """An aggregation that reads CSR, over column blocks: some rows after the others.

    Args:
        adjacency: the pattern, ``[M, N]``.
        width: columns of the result.
        dtype: of the result.
        aggregate: gives ``[rows, width]`` for some rows of the pattern.

    Returns:
        ``[M, width]``.
    """
    shape = (adjacency.shape[0], width)
    result = torch.empty(shape, dtype=dtype, device=adjacency.device)
    for first, part in adjacency.row_parts():
        result[first : first + part.shape[0]] = aggregate(part)
    return result
