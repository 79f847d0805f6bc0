"""Steps that aggregate neighbours, and those on ternary activations: packing, products, sums."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.inference.program import Apply, Register, Step, StepCheck, StepKind, Tensors

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
    operators, words = _TO_BITS if to_bits else _TO_FLOATS, words_for(size)
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


_linear_ternary = torch.ops.bitgnn.linear_ternary.default
_pack_ternary = torch.ops.bitgnn.pack_ternary.default
_bmm_tbb = torch.ops.bitgnn.bmm_tbb.default
_bspmm_tbb = torch.ops.bitgnn.bspmm_tbb.default
_bspmm_tbf = torch.ops.bitgnn.bspmm_tbf.default
_pack = torch.ops.bitgnn.pack.default


def planes_size(size: int) -> int:
    """Features of a ternary row's two planes read as one row of bits."""
    return 2 * WORD_BITS * words_for(size)


def _check_product(check: StepCheck) -> tuple[Register, ...]:
    """Floats that are made ternary on the way in; weights packed."""
    size, out = check.sizes("size", "out")
    check.reads(("floats", size))
    check.ternary_scale()
    check.packed_weight(size, out)
    to_bits = check.kind == "bmm_tbb"
    allowed = ("threshold", "flip") if to_bits else ("bias",)
    check.vectors(out, "weight_scale", *allowed, required=["weight_scale"])
    return (Register("bits" if to_bits else "floats", out),)


def _make_product(step: Step, tensors: Tensors) -> Apply:
    size, weight, w_scale = step.attributes["size"], tensors["weight"], tensors["weight_scale"]
    scale, bias = tensors["scale"].view(()), tensors.get("bias")
    compared = tensors.get("threshold"), tensors.get("flip")
    if step.kind == "bmm_tbf":
        return lambda x: _linear_ternary(x, weight, size, scale, w_scale, bias)
    return lambda x: _bmm_tbb(
        *_pack_ternary(x, scale), weight, size, scale, w_scale, None, *compared
    )


def _check_pack(check: StepCheck) -> tuple[Register, ...]:
    (size,) = check.sizes("size")
    check.reads(("floats", size))
    check.ternary_scale()
    check.vectors(None)
    return (Register("bits", planes_size(size)),)


def _make_pack(step: Step, tensors: Tensors) -> Apply:
    scale = tensors["scale"].view(())
    return lambda x: _pack_ternary(x, scale)[0].flatten(1)


def _check_sums(check: StepCheck) -> tuple[Register, ...]:
    """Both planes of ternary rows as one row of bits."""
    (size,) = check.sizes("size")
    check.reads(("bits", planes_size(size)))
    check.ternary_scale()
    to_bits = check.kind == "bspmm_tbb"
    check.vectors(size, "threshold" if to_bits else "bias")
    return (Register("bits" if to_bits else "floats", size),)


def _make_sums(step: Step, tensors: Tensors) -> Apply:
    r"""``((row * scale) * t) + bias`` with the integers t = #{+1} - #{-1} of the neighbours.

    Over CSR that is ``bspmm_tbf``. In other layouts both planes are aggregated in one pass as bits
    of +-1: sums are twice the set bits less the degree, so t is half of their difference, exactly.
    """
    size = step.attributes["size"]
    planes, words = planes_size(size), words_for(size)
    aggregate = aggregate_bits(False, planes, None)
    scale, bias = tensors["scale"].view(()), tensors.get("bias")
    to_bits, threshold = step.kind == "bspmm_tbb", tensors.get("threshold")
    half = planes // 2

    def sums(x: Tensor, a: BitAdjacency) -> Any:
        row = a.row_scale
        if a.planned_layout(2 * words) == "csr":
            factor = scale.expand(a.shape[0]).contiguous() if row is None else row * scale
            pattern = (x.view(-1, 2, words), size, a.rowptr, a.indices, factor)
            if to_bits:
                return _bspmm_tbb(*pattern, threshold, trusted=True)
            return _bspmm_tbf(*pattern, bias, trusted=True)
        counts = aggregate(x, a, use_row=False)
        t = (counts[:, :size] - counts[:, half : half + size]).mul_(0.5)
        t.mul_(scale if row is None else (row * scale).unsqueeze(1))
        if to_bits:
            return _pack(t, threshold)
        return t if bias is None else t.add_(bias)

    return sums


KINDS = (
    *(StepKind(f"bspmm_{n}", _check, _make, "pattern") for n in ("bbb", "bbf", "fbb", "fbf")),
    *(StepKind(f"bspmm_{n}", _check, _make, "values") for n in ("bfb", "bff", "ffb", "fff")),
    StepKind("bmm_tbf", _check_product, _make_product),
    StepKind("bmm_tbb", _check_product, _make_product),
    StepKind("pack_ternary", _check_pack, _make_pack),
    StepKind("bspmm_tbf", _check_sums, _make_sums, "pattern"),
    StepKind("bspmm_tbb", _check_sums, _make_sums, "pattern"),
)
