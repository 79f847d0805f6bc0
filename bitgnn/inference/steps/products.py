"""Steps that multiply packed activations by packed or float weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitTensor
from bitgnn.bits.tensor import words_for
from bitgnn.inference.program import Apply, Register, Step, StepCheck, StepKind, Tensors
from bitgnn.ops.linear import MOST_FEATURES

# Bound once: resolving an overload by name costs as much as a small kernel.
_bmm_bbb = torch.ops.bitgnn.bmm_bbb.default
_bmm_bbf = torch.ops.bitgnn.bmm_bbf.default
_bmm_add = torch.ops.bitgnn.bmm_add.default
_bits_linear = torch.ops.bitgnn.bits_linear.default
_bspmm_bbb = torch.ops.bitgnn.bspmm_bbb.default
_pack = torch.ops.bitgnn.pack.default


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
    """The product for bits given as a ``BitAdjacency`` of those that are set.

    ``sum_k x[k] w[o, k] >= 0`` is ``sum_{k set} w[o, k] >= sum_k w[o, k] / 2``: an aggregation
    of weight columns with a threshold.

    Returns:
        The step in place of ``step``, and the two buffers it reads by name.
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
    return lambda x: _bspmm_bbb(columns, size, x.rowptr, x.indices, None, half, trusted=True)


PATTERN_PRODUCT = StepKind("pattern_product", _check_pattern, _make_pattern)
"""In place of a model's first product where features are the pattern of their set bits."""
PRODUCTS = ("bmm_bbb", "bmm_bbf", "bmm_add", "bmm_add_bits")
KINDS = (
    *(StepKind(name, _check, _make) for name in PRODUCTS),
    StepKind("bits_linear", _check_linear, _make_linear),
)
