"""Steps that aggregate neighbours: bits or floats, over a pattern or over float weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency
from bitgnn.inference.step import Apply, Register, Step, StepCheck, StepKind, Tensors

__all__ = ["KINDS", "aggregate_bits", "words_of"]

WORD_BITS = 32
# Bound once: resolving an overload by name costs as much as a small kernel.
_TO_BITS = {
    "csr": torch.ops.bitgnn.bspmm_bbb.default,
    "sliced": torch.ops.bitgnn.bspmm_bbb_sliced.default,
    "frdc": torch.ops.bitgnn.bspmm_bbb_frdc.default,
}
_TO_FLOATS = {
    "csr": torch.ops.bitgnn.bspmm_bbf.default,
    "sliced": torch.ops.bitgnn.bspmm_bbf_sliced.default,
    "frdc": torch.ops.bitgnn.bspmm_bbf_frdc.default,
}
_OPERATORS = {
    letters: getattr(torch.ops.bitgnn, f"bspmm_{letters}").default
    for letters in ("fbb", "fbf", "bfb", "bff", "ffb", "fff")
}


def words_of(size: int) -> int:
    """Words of a packed row of ``size`` features."""
    return -(-size // WORD_BITS)


def aggregate_bits(to_bits: bool, size: int, last: Tensor | None) -> Apply:
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
    csr, sliced, frdc = (operators[layout] for layout in ("csr", "sliced", "frdc"))

    def aggregate(x: Tensor, a: BitAdjacency, use_row: bool = True) -> Any:
        layout, row = a.planned_layout(words), a.row_scale if use_row else None
        if layout == "csr":
            return csr(x, size, a.rowptr, a.indices, row, last, trusted=True)
        if layout == "sliced":
            return sliced(x, size, *a.sliced().arguments, row, last, trusted=True)
        return frdc(x, size, *a.frdc_arguments, row, last, trusted=True)

    return aggregate


def _check(check: StepCheck) -> tuple[Register, ...]:
    """One input; ``threshold`` where the output letter is B, else ``bias``."""
    (size,) = check.sizes("size")
    letters = check.kind.removeprefix("bspmm_")
    check.reads(("bits" if letters[0] == "b" else "floats", size))
    to_bits = letters[2] == "b"
    check.vectors(size, "threshold" if to_bits else "bias")
    return (Register("bits" if to_bits else "floats", size),)


def _make(step: Step, tensors: Tensors) -> Apply:
    letters, size = step.kind.removeprefix("bspmm_"), step.attributes["size"]
    last = tensors.get("threshold", tensors.get("bias"))
    if letters[:2] == "bb":
        return aggregate_bits(letters == "bbb", size, last)
    operator = _OPERATORS[letters]
    if letters[1] == "b":
        return lambda x, a: operator(
            x, a.rowptr, a.indices, a.row_scale, a.col_scale, last, trusted=True
        )
    if letters[0] == "b":
        return lambda x, a: operator(
            x, size, a.rowptr, a.indices, a.values, None, last, trusted=True
        )
    return lambda x, a: operator(x, a.rowptr, a.indices, a.values, last, trusted=True)


KINDS = (
    *(StepKind(f"bspmm_{n}", _check, _make, "pattern") for n in ("bbb", "bbf", "fbb", "fbf")),
    *(StepKind(f"bspmm_{n}", _check, _make, "values") for n in ("bfb", "bff", "ffb", "fff")),
)
