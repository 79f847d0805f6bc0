"""Steps that multiply packed activations by packed weights, and their forms for other input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import bitgnn.ops  # noqa: F401  (defines torch.ops.bitgnn)
from bitgnn.bits import BitTensor
from bitgnn.inference.program import Register, Runner, Step, StepKind
from bitgnn.inference.steps._checks import expect, expect_attributes, expect_tensors, positive
from bitgnn.inference.steps.fused_operands import FloatPair
from bitgnn.inference.steps.layouts import bind_bits_aggregation, words_of

__all__ = [
    "KINDS",
    "PATTERN_PRODUCT",
    "PRODUCTS",
    "bind_aggregated_product",
    "bind_float_product",
    "pattern_product",
    "takes_pattern",
]

# Bound once: resolving an overload by name costs as much as a small kernel.
_bmm_bbb = torch.ops.bitgnn.bmm_bbb.default
_bmm_bbf = torch.ops.bitgnn.bmm_bbf.default
_bmm_fbb = torch.ops.bitgnn.bmm_fbb.default
_bmm_fbf = torch.ops.bitgnn.bmm_fbf.default
_bmm_add = torch.ops.bitgnn.bmm_add.default
_bmm_bspmm = torch.ops.bitgnn.bmm_bspmm.default
_bspmm_bbb = torch.ops.bitgnn.bspmm_bbb.default
_pack = torch.ops.bitgnn.pack.default

_AGGREGATIONS = ("bspmm_bbb", "bspmm_bbf", "bspmm_fbb", "bspmm_fbf")
PRODUCTS = ("bmm_bbb", "bmm_bbf", "bmm_add", "bmm_add_bits")


def _check(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    """Inputs: words, their row scale if ``scaled``, and the addend of a ``bmm_add``."""
    attributes = expect_attributes(step, size=int, out=int, scaled=bool)
    size, out = positive("size", attributes["size"]), positive("out", attributes["out"])
    adds, to_bits = step.kind.startswith("bmm_add"), step.kind in ("bmm_bbb", "bmm_add_bits")
    expect(registers, *["bits"] + ["scale"] * attributes["scaled"] + ["floats"] * adds)
    if registers[0].size != size or (adds and registers[-1].size != out):
        raise ValueError(f"inputs must have {size} (and {out}) features, got {list(registers)}")
    own = dict(tensors)
    weight = own.pop("weight", None)
    if weight is None:
        raise ValueError("tensor weight is missing")
    BitTensor(weight, size).validate()  # dtype, shape and clear padding
    if weight.size(0) != out:
        raise ValueError(f"weight must have {out} rows, got {weight.size(0)}")
    allowed = ["weight_scale", "threshold", "flip"] if to_bits else ["weight_scale", "bias"]
    allowed += ["bias"] if adds and to_bits else []
    expect_tensors(own, dict.fromkeys(allowed, out), {"flip": torch.bool})
    return (Register("bits" if to_bits else "floats", out),)


def _bind_bits(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    x, *scale = step.inputs
    (out,) = step.outputs
    weight, size = tensors["weight"], step.attributes["size"]
    if not scale and tensors.keys() == {"weight"}:

        def run(v: list[Any], graphs: Sequence[Any]) -> None:
            v[out] = _bmm_bbb(v[x], weight, size)

        return run
    w_scale, threshold, flip = (tensors.get(n) for n in ("weight_scale", "threshold", "flip"))

    def run_with_threshold(v: list[Any], graphs: Sequence[Any]) -> None:
        x_scale = v[scale[0]] if scale else None
        v[out] = _bmm_bbb(v[x], weight, size, x_scale, w_scale, None, threshold, flip)

    return run_with_threshold


def _bind_floats(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    x, *scale = step.inputs
    (out,) = step.outputs
    weight, size = tensors["weight"], step.attributes["size"]
    w_scale, bias = tensors.get("weight_scale"), tensors.get("bias")

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        v[out] = _bmm_bbf(v[x], weight, size, v[scale[0]] if scale else None, w_scale, bias)

    return run


def _bind_add(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    x, *scale, addend = step.inputs
    (out,) = step.outputs
    weight, size = tensors["weight"], step.attributes["size"]
    rest = tuple(tensors.get(name) for name in ("weight_scale", "bias", "threshold", "flip"))
    to_bits = step.kind == "bmm_add_bits"

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        x_scale = v[scale[0]] if scale else None
        v[out] = _bmm_add(v[x], weight, v[addend], size, x_scale, *rest, None, None, False, to_bits)

    return run


def bind_float_product(
    packing: Step, step: Step, pack_tensors: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> Runner | None:
    """One call for a packing step and the product behind it; None where no operator does both.

    Args:
        packing: a ``pack`` or ``pack_scaled`` step.
        step: the only reader of its bits.
        pack_tensors: tensors of the packing step.
        tensors: tensors of the product.
    """
    (x,), (out,) = packing.inputs, step.outputs
    x_threshold, x_gain = pack_tensors.get("threshold"), pack_tensors.get("gain")
    weight, size, scaled = tensors["weight"], step.attributes["size"], step.attributes["scaled"]
    w_scale, bias, threshold, flip = (
        tensors.get(name) for name in ("weight_scale", "bias", "threshold", "flip")
    )
    if step.kind in ("bmm_bbb", "bmm_bbf") and not scaled and w_scale is not None:
        return None  # without a row scale these two leave the weight's scale out as well
    if step.kind == "bmm_bbb":

        def run(v: list[Any], graphs: Sequence[Any]) -> None:
            v[out] = _bmm_fbb(
                v[x], weight, w_scale, None, threshold, flip, x_threshold, x_gain, scaled
            )

    elif step.kind == "bmm_bbf":

        def run(v: list[Any], graphs: Sequence[Any]) -> None:
            v[out] = _bmm_fbf(v[x], weight, w_scale, bias, x_threshold, x_gain, scaled)

    else:
        addend, to_bits = step.inputs[-1], step.kind == "bmm_add_bits"
        rest = (w_scale, bias, threshold, flip, x_threshold, x_gain, scaled, to_bits)

        def run(v: list[Any], graphs: Sequence[Any]) -> None:
            v[out] = _bmm_add(v[x], weight, v[addend], size, None, *rest)

    return run


def bind_aggregated_product(
    step: Step,
    aggregation: Step,
    tensors: Mapping[str, Tensor],
    last_tensors: Mapping[str, Tensor],
    packing: Step | None = None,
    pack_tensors: Mapping[str, Tensor] | None = None,
) -> Runner | None:
    """One call for a product and the aggregation of its result; None where no operator does both.

    Args:
        step: the product.
        aggregation: the only reader of its result.
        tensors: tensors of the product.
        last_tensors: tensors of the aggregation.
        packing: the packing step in front of the product, where it is part of the call.
        pack_tensors: its tensors.
    """
    bits = step.kind == "bmm_bbb"
    fits = tensors.keys() == {"weight"} if bits else "bias" not in tensors
    if step.kind not in ("bmm_bbb", "bmm_bbf") or aggregation.kind not in _AGGREGATIONS or not fits:
        return None
    if bits:
        first, given = step if packing is None else packing, pack_tensors or {}
        return _bind_aggregated_bits(first, step, aggregation, tensors, last_tensors, given)
    pair = FloatPair.of(step, aggregation, tensors, last_tensors, packing, pack_tensors)
    x, out, graph, scale = pair.x, pair.out, pair.graph, pair.x_scale
    weight, size, w_scale, packed = pair.weight, pair.size, pair.w_scale, pair.packing
    last = (pair.bias, pair.threshold)
    to_bits = aggregation.kind.endswith("b")

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        a = graphs[graph]
        x_scale = None if scale is None else v[scale]
        v[out] = _bmm_bspmm(
            v[x], weight, size, a.rowptr, a.indices, x_scale, w_scale, *packed, a.row_scale,
            a.col_scale, *last, False, to_bits, trusted=True,
        )  # fmt: skip

    return run


def _bind_aggregated_bits(
    first: Step,
    step: Step,
    aggregation: Step,
    tensors: Mapping[str, Tensor],
    last_tensors: Mapping[str, Tensor],
    pack_tensors: Mapping[str, Tensor],
) -> Runner:
    """One call for a product to bits and their aggregation; two where the graph is not CSR."""
    x, (out,), graph = first.inputs[0], aggregation.outputs, aggregation.graph
    assert graph is not None, "Program.check requires it"
    weight, size, hidden_size = tensors["weight"], step.attributes["size"], step.attributes["out"]
    x_threshold, words = pack_tensors.get("threshold"), words_of(hidden_size)
    to_bits = aggregation.kind.endswith("b")
    last = (last_tensors.get("bias"), last_tensors.get("threshold"))
    aggregate = bind_bits_aggregation(to_bits, hidden_size, last[to_bits])
    packed = (None, None, x_threshold, None, False)

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        a = graphs[graph]
        if a.planned_layout(words) == "csr":
            v[out] = _bmm_bspmm(
                v[x], weight, size, a.rowptr, a.indices, *packed, a.row_scale, None, *last, True,
                to_bits, trusted=True,
            )  # fmt: skip
        elif first is step:
            v[out] = aggregate(_bmm_bbb(v[x], weight, size), a)
        else:
            hidden = _bmm_fbb(v[x], weight, None, None, None, None, x_threshold, None, False)
            v[out] = aggregate(hidden, a)

    return run


def takes_pattern(step: Step) -> bool:
    """Whether the product can read its bits as the pattern of those that are set."""
    return step.kind == "bmm_bbb" and step.tensors.keys() == {"weight"}


def pattern_product(step: Step, tensors: Mapping[str, Tensor]) -> tuple[Step, dict[str, Tensor]]:
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


def _check_pattern(
    step: Step, registers: Sequence[Register], tensors: Mapping[str, Tensor]
) -> tuple[Register, ...]:
    raise ValueError("no program holds this step: it is made when features come as a pattern")


def _bind_pattern(step: Step, tensors: Mapping[str, Tensor]) -> Runner:
    (x,), (out,), size = step.inputs, step.outputs, step.attributes["out"]
    columns, half = tensors["columns"], tensors["half_sum"]

    def run(v: list[Any], graphs: Sequence[Any]) -> None:
        pattern = v[x]
        v[out] = _bspmm_bbb(
            columns, size, pattern.rowptr, pattern.indices, None, half, trusted=True
        )

    return run


PATTERN_PRODUCT = StepKind("pattern_product", _check_pattern, _bind_pattern)
"""In place of a model's first product where features are the pattern of their set bits."""

KINDS = (
    StepKind("bmm_bbb", _check, _bind_bits),
    StepKind("bmm_bbf", _check, _bind_floats),
    StepKind("bmm_add", _check, _bind_add),
    StepKind("bmm_add_bits", _check, _bind_add),
)
