"""Steps that multiply packed or ternary activations by weights, and that sum rows over a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.inference.program import Apply, Register, Step, StepCheck, StepKind, Tensors
from bitgnn.ops.linear import MOST_FEATURES

# Bound once: resolving an overload by name costs as much as a small kernel.
_bmm_bbb = torch.ops.bitgnn.bmm_bbb.default
_bmm_bbf = torch.ops.bitgnn.bmm_bbf.default
_bmm_add = torch.ops.bitgnn.bmm_add.default
_bits_linear = torch.ops.bitgnn.bits_linear.default
_pack = torch.ops.bitgnn.pack.default
_linear_ternary = torch.ops.bitgnn.linear_ternary.default
_pack_ternary = torch.ops.bitgnn.pack_ternary.default
_bmm_tbb = torch.ops.bitgnn.bmm_tbb.default
_bspmm_tbb = torch.ops.bitgnn.bspmm_tbb.default
_bspmm_tbf = torch.ops.bitgnn.bspmm_tbf.default
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


def _check(check: StepCheck) -> tuple[Register, ...]:
    """Inputs: words, their row scale if ``scaled``, and the addend of a ``bmm_add``."""
    size, out = check.sizes("size", "out", scaled=bool)
    adds, to_bits = check.kind.startswith("bmm_add"), check.kind in ("bmm_bbb", "bmm_add_bits")
    scale, addend = ("scale", None), ("floats", out)
    check.reads(("bits", size), *[scale] * check.attributes["scaled"], *[addend] * adds)
    check.packed_weight(size, out)
    last = ["threshold", "flip", *["bias"] * adds] if to_bits else ["bias"]
    check.vectors(out, "weight_scale", *last)
    return (Register("bits" if to_bits else "floats", out),)


def _make(step: Step, tensors: Tensors) -> Apply:
    weight, size = tensors["weight"], step.attributes["size"]
    scaled = step.attributes["scaled"]
    if step.kind == "bmm_bbb" and not scaled and tensors.keys() == {"weight"}:
        return lambda x: _bmm_bbb(x, weight, size)
    w_scale, bias = tensors.get("weight_scale"), tensors.get("bias")
    compared = tensors.get("threshold"), tensors.get("flip")
    if step.kind == "bmm_bbb":
        return lambda x, scale=None: _bmm_bbb(x, weight, size, scale, w_scale, None, *compared)
    if step.kind == "bmm_bbf":
        return lambda x, scale=None: _bmm_bbf(x, weight, size, scale, w_scale, bias)
    rest = (w_scale, bias, *compared, None, None, False, step.kind == "bmm_add_bits")
    if scaled:
        return lambda x, scale, addend: _bmm_add(x, weight, addend, size, scale, *rest)
    return lambda x, addend: _bmm_add(x, weight, addend, size, None, *rest)


def _check_linear(check: StepCheck) -> tuple[Register, ...]:
    """Inputs: words, their row scale if ``scaled``, and the addend if ``adds``."""
    size, out = check.sizes("size", "out", scaled=bool, adds=bool)
    if size > MOST_FEATURES:
        raise ValueError(f"size must be at most {MOST_FEATURES}, got {size}")
    scaled, adds = check.attributes["scaled"], check.attributes["adds"]
    check.reads(("bits", size), *[("scale", None)] * scaled, *[("floats", out)] * adds)
    check.tensor("digits", torch.int8, 3, out, words_for(size), 8, 4)
    check.vectors(out, "step", "bias", required=["step"])
    return (Register("floats", out),)


def _make_linear(step: Step, tensors: Tensors) -> Apply:
    size, scaled, adds = (step.attributes[name] for name in ("size", "scaled", "adds"))
    digits, unit, bias = tensors["digits"], tensors["step"], tensors.get("bias")

    def linear(x: Tensor, *rest: Tensor) -> Any:
        scale, addend = rest[0] if scaled else None, rest[-1] if adds else None
        return _bits_linear(x, digits, unit, size, scale, bias, addend)

    return linear


def takes_pattern(step: Step) -> bool:
    """Whether the product can read its bits as the pattern of those that are set."""
    return step.kind == "bmm_bbb" and step.tensors.keys() == {"weight"}


def pattern_product(step: Step, tensors: Tensors) -> tuple[Step, dict[str, Tensor]]:
    """The product for bits given as a ``BitAdjacency`` of those that are set, and its two buffers.

    ``sum_k x[k] w[o, k] >= 0`` is ``sum_{k set} w[o, k] >= sum_k w[o, k] / 2``: an aggregation
    of weight columns with a threshold.
    """
    values = BitTensor(tensors["weight"], step.attributes["size"]).to_float()
    buffers = {
        "pattern_columns": _pack(values.t().contiguous()),
        "pattern_half_sum": values.sum(1) / 2,
    }
    names = {"columns": "pattern_columns", "half_sum": "pattern_half_sum"}
    return replace(step, kind=PATTERN_PRODUCT.name, tensors=names), buffers


def _check_pattern(check: StepCheck) -> tuple[Register, ...]:
    raise ValueError("no program holds this step: it is made when features come as a pattern")


def _make_pattern(step: Step, tensors: Tensors) -> Apply:
    size, columns, half = step.attributes["out"], tensors["columns"], tensors["half_sum"]
    return lambda x: _TO_BITS["csr"](columns, size, x.rowptr, x.indices, None, half, trusted=True)


PATTERN_PRODUCT = StepKind("pattern_product", _check_pattern, _make_pattern)
"""In place of a model's first product where features are the pattern of their set bits."""


def aggregate_bits(to_bits: bool, size: int, last: Tensor | None) -> Apply:
    """The aggregation of packed rows in the layout that the graph was prepared in.

    ``last`` ``[size]`` is the threshold of packed results or the bias of floats. Takes words
    ``[N, W]``, the pattern, and whether its row factor acts; gives words or float32 ``[M, size]``.
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


def _check_rows(check: StepCheck) -> tuple[Register, ...]:
    """One input; ``threshold`` where the output letter is B, else ``bias``."""
    (size,) = check.sizes("size")
    letters = check.kind.removeprefix("bspmm_")
    check.reads(("bits" if letters[0] == "b" else "floats", size))
    to_bits = letters[2] == "b"
    check.vectors(size, "threshold" if to_bits else "bias")
    return (Register("bits" if to_bits else "floats", size),)


def _make_rows(step: Step, tensors: Tensors) -> Apply:
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


def _planes_size(size: int) -> int:
    """Features of a ternary row's two planes read as one row of bits."""
    return 2 * WORD_BITS * words_for(size)


def _check_ternary_product(check: StepCheck) -> tuple[Register, ...]:
    """Floats that are made ternary on the way in; weights packed."""
    size, out = check.sizes("size", "out")
    check.reads(("floats", size))
    check.ternary_scale()
    check.packed_weight(size, out)
    to_bits = check.kind == "bmm_tbb"
    allowed = ("threshold", "flip") if to_bits else ("bias",)
    check.vectors(out, "weight_scale", *allowed, required=["weight_scale"])
    return (Register("bits" if to_bits else "floats", out),)


def _make_ternary_product(step: Step, tensors: Tensors) -> Apply:
    size, weight, w_scale = step.attributes["size"], tensors["weight"], tensors["weight_scale"]
    scale, bias = tensors["scale"].view(()), tensors.get("bias")
    compared = tensors.get("threshold"), tensors.get("flip")
    if step.kind == "bmm_tbf":
        return lambda x: _linear_ternary(x, weight, size, scale, w_scale, bias)
    return lambda x: _bmm_tbb(
        *_pack_ternary(x, scale), weight, size, scale, w_scale, None, *compared
    )


def _check_pack_ternary(check: StepCheck) -> tuple[Register, ...]:
    (size,) = check.sizes("size")
    check.reads(("floats", size))
    check.ternary_scale()
    return (Register("bits", _planes_size(size)),)


def _make_pack_ternary(step: Step, tensors: Tensors) -> Apply:
    scale = tensors["scale"].view(())
    return lambda x: _pack_ternary(x, scale)[0].flatten(1)


def _check_ternary_sums(check: StepCheck) -> tuple[Register, ...]:
    """Both planes of ternary rows as one row of bits."""
    (size,) = check.sizes("size")
    check.reads(("bits", _planes_size(size)))
    check.ternary_scale()
    to_bits = check.kind == "bspmm_tbb"
    check.vectors(size, "threshold" if to_bits else "bias")
    return (Register("bits" if to_bits else "floats", size),)


def _make_ternary_sums(step: Step, tensors: Tensors) -> Apply:
    r"""``((row * scale) * t) + bias`` with the integers t = #{+1} - #{-1} of the neighbours.

    Over CSR that is ``bspmm_tbf``. In other layouts both planes are aggregated in one pass as bits
    of +-1: sums are twice the set bits less the degree, so t is half of their difference, exactly.
    """
    size = step.attributes["size"]
    planes, words = _planes_size(size), words_for(size)
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
    *(StepKind(n, _check, _make) for n in ("bmm_bbb", "bmm_bbf", "bmm_add", "bmm_add_bits")),
    StepKind("bits_linear", _check_linear, _make_linear),
    *(
        StepKind(f"bspmm_{n}", _check_rows, _make_rows, "pattern" if n[1] == "b" else "values")
        for n in ("bbb", "bbf", "fbb", "fbf", "bfb", "bff", "ffb", "fff")
    ),
    *(StepKind(n, _check_ternary_product, _make_ternary_product) for n in ("bmm_tbf", "bmm_tbb")),
    StepKind("pack_ternary", _check_pack_ternary, _make_pack_ternary),
    *(
        StepKind(n, _check_ternary_sums, _make_ternary_sums, "pattern")
        for n in ("bspmm_tbf", "bspmm_tbb")
    ),
)
