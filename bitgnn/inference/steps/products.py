"""Steps that multiply packed or ternary activations by weights, and that sum rows over a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitAdjacency, BitTensor
from bitgnn.bits.tensor import WORD_BITS, words_for
from bitgnn.inference.step import (
    KINDS,
    Apply,
    Form,
    Read,
    Register,
    Step,
    StepReader,
    Tensors,
    step_kind,
)
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
_bspmm_bbb = torch.ops.bitgnn.bspmm_bbb.default
_bspmm_bbb_sliced = torch.ops.bitgnn.bspmm_bbb_sliced.default
_bspmm_bbf = torch.ops.bitgnn.bspmm_bbf.default
_bspmm_bbf_sliced = torch.ops.bitgnn.bspmm_bbf_sliced.default
_OPERATORS = {
    letters: getattr(torch.ops.bitgnn, f"bspmm_{letters}").default
    for letters in ("fbb", "fbf", "bfb", "bff", "ffb", "fff")
}


def _form(to_bits: bool) -> Form:
    return "bits" if to_bits else "floats"


@step_kind("bmm_bbb", "bmm_bbf", "bmm_add", "bmm_add_bits")
def _read_product(s: StepReader) -> Read:
    """Inputs: words, their row scale if ``scaled``, and the addend of a ``bmm_add``."""
    size, out = s.sizes("size", "out", scaled=bool)
    scaled = s.attributes["scaled"]
    adds, to_bits = s.kind.startswith("bmm_add"), s.kind in ("bmm_bbb", "bmm_add_bits")
    s.reads(("bits", size), *[("scale", None)] * scaled, *[("floats", out)] * adds)
    weight = s.packed_weight(size, out)
    last = ["threshold", "flip", *["bias"] * adds] if to_bits else ["bias"]
    t = s.vectors(out, "weight_scale", *last)
    written = [Register(_form(to_bits), out)]
    if s.kind == "bmm_bbb" and not scaled and not t:
        return written, lambda x: _bmm_bbb(x, weight, size)
    w_scale, bias = t.get("weight_scale"), t.get("bias")
    compared = t.get("threshold"), t.get("flip")
    if s.kind == "bmm_bbb":
        return written, lambda x, scale=None: _bmm_bbb(
            x, weight, size, scale, w_scale, None, *compared
        )
    if s.kind == "bmm_bbf":
        return written, lambda x, scale=None: _bmm_bbf(x, weight, size, scale, w_scale, bias)
    rest = (w_scale, bias, *compared, None, None, False, to_bits)
    if scaled:
        return written, lambda x, scale, addend: _bmm_add(x, weight, addend, size, scale, *rest)
    return written, lambda x, addend: _bmm_add(x, weight, addend, size, None, *rest)


@step_kind("bits_linear")
def _read_linear(s: StepReader) -> Read:
    """Inputs: words, their row scale if ``scaled``, and the addend if ``adds``."""
    size, out = s.sizes("size", "out", scaled=bool, adds=bool)
    if size > MOST_FEATURES:
        raise ValueError(f"size must be at most {MOST_FEATURES}, got {size}")
    scaled, adds = s.attributes["scaled"], s.attributes["adds"]
    s.reads(("bits", size), *[("scale", None)] * scaled, *[("floats", out)] * adds)
    digits = s.tensor("digits", torch.int8, 3, out, words_for(size), 8, 4)
    t = s.vectors(out, "step", "bias", required=["step"])
    unit, bias = t["step"], t.get("bias")

    def linear(x: Tensor, *rest: Tensor) -> Any:
        scale, addend = rest[0] if scaled else None, rest[-1] if adds else None
        return _bits_linear(x, digits, unit, size, scale, bias, addend)

    return [Register("floats", out)], linear


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


@step_kind("pattern_product")
def _read_pattern_product(s: StepReader) -> Read:
    """In place of a model's first product where features are the pattern of their set bits."""
    if s.checks:
        raise ValueError("no program holds this step: it is made when features come as a pattern")
    size, columns, half = s.attributes["out"], s.take("columns"), s.take("half_sum")
    return [Register("bits", size)], lambda x: _bspmm_bbb(
        columns, size, x.rowptr, x.indices, None, half, trusted=True
    )


PATTERN_PRODUCT = KINDS["pattern_product"]


def aggregate_bits(to_bits: bool, size: int, last: Tensor | None) -> Apply:
    """The aggregation of packed rows in the layout that the graph was prepared in.

    ``last`` ``[size]`` is the threshold of packed results or the bias of floats. Takes words
    ``[N, W]``, the pattern, and whether its row factor acts; gives words or float32 ``[M, size]``.
    """
    words, csr = words_for(size), _bspmm_bbb if to_bits else _bspmm_bbf
    sliced = _bspmm_bbb_sliced if to_bits else _bspmm_bbf_sliced

    def aggregate(x: Tensor, a: BitAdjacency, use_row: bool = True) -> Any:
        row = a.row_scale if use_row else None
        if a.reads_slices(words):
            return sliced(x, size, *a.sliced().arguments, row, last, trusted=True)
        return csr(x, size, a.rowptr, a.indices, row, last, trusted=True)

    return aggregate


@step_kind("bspmm_bbb", "bspmm_bbf", "bspmm_fbb", "bspmm_fbf", uses_graph="pattern")
@step_kind("bspmm_bfb", "bspmm_bff", "bspmm_ffb", "bspmm_fff", uses_graph="values")
def _read_rows(s: StepReader) -> Read:
    """One input; ``threshold`` where the output letter is B, else ``bias``."""
    (size,) = s.sizes("size")
    letters = s.kind.removeprefix("bspmm_")
    s.reads((_form(letters[0] == "b"), size))
    to_bits = letters[2] == "b"
    name = "threshold" if to_bits else "bias"
    last = s.vectors(size, name).get(name)
    written = [Register(_form(to_bits), size)]
    if letters[:2] == "bb":
        return written, aggregate_bits(to_bits, size, last)
    operator = _OPERATORS[letters]
    if letters[1] == "b":
        return written, lambda x, a: operator(
            x, a.rowptr, a.indices, a.row_scale, a.col_scale, last, trusted=True
        )
    if letters[0] == "b":
        return written, lambda x, a: operator(
            x, size, a.rowptr, a.indices, a.values, None, last, trusted=True
        )
    return written, lambda x, a: operator(x, a.rowptr, a.indices, a.values, last, trusted=True)


def _planes_size(size: int) -> int:
    """Features of a ternary row's two planes read as one row of bits."""
    return 2 * WORD_BITS * words_for(size)


@step_kind("bmm_tbf", "bmm_tbb")
def _read_ternary_product(s: StepReader) -> Read:
    """Floats that are made ternary on the way in; weights packed."""
    size, out = s.sizes("size", "out")
    s.reads(("floats", size))
    scale, weight, to_bits = s.ternary_scale(), s.packed_weight(size, out), s.kind == "bmm_tbb"
    allowed = ("threshold", "flip") if to_bits else ("bias",)
    t = s.vectors(out, "weight_scale", *allowed, required=["weight_scale"])
    w_scale, rest = t["weight_scale"], [t.get(name) for name in allowed]
    if not to_bits:
        return [Register("floats", out)], lambda x: _linear_ternary(
            x, weight, size, scale, w_scale, *rest
        )
    return [Register("bits", out)], lambda x: _bmm_tbb(
        *_pack_ternary(x, scale), weight, size, scale, w_scale, None, *rest
    )


@step_kind("pack_ternary")
def _read_pack_ternary(s: StepReader) -> Read:
    (size,) = s.sizes("size")
    s.reads(("floats", size))
    scale = s.ternary_scale()
    written = [Register("bits", _planes_size(size))]
    return written, lambda x: _pack_ternary(x, scale)[0].flatten(1)


@step_kind("bspmm_tbf", "bspmm_tbb", uses_graph="pattern")
def _read_ternary_rows(s: StepReader) -> Read:
    r"""``((row * scale) * t) + bias`` with the integers t = #{+1} - #{-1} of the neighbours.

    Over CSR that is ``bspmm_tbf``. In other layouts both planes are aggregated in one pass as bits
    of +-1: sums are twice the set bits less the degree, so t is half of their difference, exactly.
    """
    (size,) = s.sizes("size")
    planes, words = _planes_size(size), words_for(size)
    s.reads(("bits", planes))
    scale, to_bits = s.ternary_scale(), s.kind == "bspmm_tbb"
    t = s.vectors(size, "threshold" if to_bits else "bias")
    bias, threshold = t.get("bias"), t.get("threshold")
    aggregate = aggregate_bits(False, planes, None)
    half = planes // 2

    def sums(x: Tensor, a: BitAdjacency) -> Any:
        row = a.row_scale
        if not a.reads_slices(2 * words):
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

    return [Register(_form(to_bits), size)], sums
